//! What the compiler says about an attribute that is wrong, word by word, and that it says nothing about one that is right.
//!
//! Each file under `ui/` has one mistake; the `.stderr` beside it shows at which token the error stands and what is
//! accepted there. After a change of words: `TRYBUILD=overwrite cargo test -p clinch --test attribute_errors`, and read
//! the difference.

#![cfg(feature = "macros")]

/// One test, because each set of cases builds the library anew.
///
/// Proves: L11
#[test]
fn mistakes_are_compile_errors_at_their_tokens() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/right/*.rs");
}
