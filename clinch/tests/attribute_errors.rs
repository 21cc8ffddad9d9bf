//! What the compiler says about an attribute that is wrong, word by word.
//!
//! Each file under `ui/` has one mistake; the `.stderr` beside it shows at which token the error stands and what is
//! accepted there. After a change of words: `TRYBUILD=overwrite cargo test -p clinch --test attribute_errors`, and read
//! the difference. (What is right is in `attributes/shapes.rs`: a case that must pass would make all of them, and all that
//! they depend on, be built instead of only checked.)

#![cfg(feature = "macros")]

/// One test, because each set of cases checks the library anew.
///
/// Proves: L11
#[test]
fn mistakes_are_compile_errors_at_their_tokens() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
