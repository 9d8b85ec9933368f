//! What does not compile, and what the compiler then says.

#[test]
fn the_derive_says_what_is_wrong_where_it_is_wrong() {
    trybuild::TestCases::new().compile_fail("tests/custom_errors/refused/*.rs");
}
