//! A configuration that is taken says the same when it is written and read again.
#![no_main]

use clinch::config::Config;
use libfuzzer_sys::fuzz_target;

/// Every field with its value, without where it came from.
fn values(config: &Config) -> Vec<(String, String)> {
    let shown = config.to_json();
    let fields = shown.as_object().expect("an object of fields");
    fields.iter().map(|(path, field)| (path.clone(), field["value"].to_string())).collect()
}

fuzz_target!(|text: &str| {
    match Config::from_toml(text) {
        Ok(config) => {
            let shown = config.to_toml();
            let _ = config.engine_url();
            let _ = config.check();
            // What is secret is not shown, so that it cannot be read again.
            if !shown.contains("***") {
                let again = Config::from_toml(&shown).expect("what is shown can be read");
                assert_eq!(values(&again), values(&config));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
