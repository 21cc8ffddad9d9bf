//! Whatever stands where a password does, it is not shown.
#![no_main]

use clinch::config::Config;
use clinch::stores::without_password;
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "s3cr3t";

fuzz_target!(|input: (u8, &str, &str)| {
    let (which, before, after) = input;
    let _ = without_password(before);
    let schemes = ["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster", "redis+quorum"];
    let scheme = schemes[usize::from(which) % schemes.len()];
    // A password ends with the last `@`; before it stands a user, and no secret.
    if !before.contains(SECRET) && !before.contains([':', '@']) && !after.contains(SECRET) {
        let url = format!("{scheme}://{before}:{SECRET}@{after}");
        assert!(!without_password(&url).contains(SECRET), "{url:?}");
        let mut text = String::new();
        for c in url.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => return,
                c => text.push(c),
            }
        }
        match Config::from_toml(&format!("store = \"{text}\"")) {
            Ok(config) => assert!(!config.to_toml().contains(SECRET), "{url:?}"),
            Err(error) => assert!(!error.to_string().contains(SECRET), "{url:?}: {error}"),
        }
    }
});
