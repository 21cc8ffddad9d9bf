//! What the compiler says about an attribute that is wrong, word by word.
//!
//! Each file under `ui/` has one mistake; the `.stderr` beside it shows at which token the error stands and what is
//! accepted there. After a change of words: `TRYBUILD=overwrite cargo test -p clinch-macros --test attribute_errors`, and read
//! the difference. (What is right is in `clinch/tests/attributes/shapes.rs`: a case that must pass would make all of them, and all that
//! they depend on, be built instead of only checked.)

use std::process::Command;

/// The compiler in whose words the cases under `ui/rustc/` are. Others say the same in other words.
const SPOKEN_BY: &str = "rustc 1.95.";

/// One test, because each set of cases checks the library anew.
///
/// Proves: L11
#[test]
fn mistakes_are_compile_errors_at_their_tokens() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output();
    if version.is_ok_and(|version| version.stdout.starts_with(SPOKEN_BY.as_bytes())) {
        cases.compile_fail("tests/ui/rustc/*.rs");
    }
}
