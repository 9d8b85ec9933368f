//! The derive asks for nothing in scope: it compiles without the prelude, and beside names that shadow its own.
#![no_implicit_prelude]
#![allow(dead_code, reason = "that it compiles is the test")]

struct Option;
struct String;
struct Result;

#[derive(::std::fmt::Debug, ::aplomb::AgentError)]
#[agent_error(code = "hygiene.all", parent = "tool.error", hint = "h", docs_url = "d", retryable = true)]
#[error("{formatter} {context} {error:?} {f}")]
struct All {
    #[context]
    formatter: u8,
    #[context]
    context: ::std::string::String,
    #[context]
    error: ::std::option::Option<u8>,
    f: u8,
    #[source]
    cause: ::std::option::Option<::std::io::Error>,
}

fn in_a_function() {
    #[derive(::std::fmt::Debug, ::aplomb::AgentError)]
    #[agent_error(code = "hygiene.local", parent = self::All)]
    #[error("local")]
    struct Local;
}

#[::core::prelude::v1::test]
fn one_in_a_function_is_listed_too() {
    ::std::assert!(::aplomb::error::Code::find("hygiene.local").is_some());
}
