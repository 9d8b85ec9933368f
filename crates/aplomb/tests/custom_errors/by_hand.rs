//! The plain way, without macros: a declaration and a trait.

use std::fmt;

use aplomb::error::{self, AgentError, Code, Declaration};
use aplomb::{Error, codes};
use serde_json::{Map, Value, json};

static QUOTA: Declaration =
    Declaration::new("print.quota", codes::TOOL_RATE_LIMIT, "Quota", file!(), line!())
        .fields(&["pages"])
        .hint("print less");

#[derive(Debug)]
struct Quota {
    pages: u32,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages are too many", self.pages)
    }
}

impl std::error::Error for Quota {}

impl AgentError for Quota {
    const CODE: Code = Code::declared(&QUOTA);

    fn hint(&self) -> Option<String> {
        (self.pages > 1000).then(|| "print a book elsewhere".to_owned())
    }

    fn context(&self) -> Map<String, Value> {
        Map::from_iter([("pages".to_owned(), json!(self.pages))])
    }
}

#[test]
fn what_is_declared_by_hand_works_like_what_is_derived() {
    let error = Error::custom(Quota { pages: 20 });
    assert_eq!(error.to_string(), "20 pages are too many\n  hint: print less");
    assert!(error.is_a(codes::TOOL_RETRYABLE) && error.retryable());
    assert_eq!(error.context("pages"), Some(&json!(20)));
    assert_eq!(Quota::CODE.fields(), ["tool_name", "retry_after_ms", "pages"]);
    assert_eq!(error.downcast_ref::<Quota>().unwrap().pages, 20);
    assert_eq!(Error::custom(Quota { pages: 2000 }).hint(), Some("print a book elsewhere"));
    assert!(error::check_declared(&[Quota::CODE]).is_ok());
}

/// A derived error with one as its parent.
#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "print.quota.colour", parent = Quota)]
#[error("colour is dear")]
struct Colour;

#[test]
fn a_derived_error_can_be_below_one_that_is_declared_by_hand() {
    assert!(Error::from(Colour).is_a(Quota::CODE) && Error::from(Colour).retryable());
}

mod clashes {
    use super::*;

    static ONE: Declaration = Declaration::new("clash.twice", codes::TOOL_ERROR, "One", "one.rs", 1);
    static OTHER: Declaration = Declaration::new("clash.twice", codes::USER_ERROR, "Other", "other.rs", 2);
    static BUILT_IN: Declaration = Declaration::new("tool.timeout", codes::TOOL_ERROR, "Mine", "mine.rs", 3);
    static DERIVED: Declaration =
        Declaration::new("print.quota.colour", codes::TOOL_ERROR, "Mine", "mine.rs", 4);
    static SHOUTED: Declaration = Declaration::new("Clash.Loud", codes::TOOL_ERROR, "Loud", "loud.rs", 5);

    fn refusal(declarations: &[&'static Declaration]) -> Error {
        let codes: Vec<_> = declarations.iter().map(|declaration| Code::declared(declaration)).collect();
        let refusal = error::check_declared(&codes).unwrap_err();
        assert_eq!(refusal.code(), codes::PLUGIN_ERROR);
        refusal
    }

    #[test]
    fn one_code_declared_twice_is_refused_with_both_places() {
        assert_eq!(
            refusal(&[&ONE, &OTHER]).message(),
            "error code clash.twice is declared twice: one.rs:1 and other.rs:2"
        );
    }

    #[test]
    fn the_same_declaration_twice_is_no_clash() {
        assert!(error::check_declared(&[Code::declared(&ONE), Code::declared(&ONE)]).is_ok());
    }

    #[test]
    fn a_built_in_code_is_taken() {
        let message = refusal(&[&BUILT_IN]).message().to_owned();
        assert!(message.starts_with("error code tool.timeout is declared twice: "), "{message}");
        assert!(message.contains("code.rs:") && message.ends_with(" and mine.rs:3"), "{message}");
    }

    #[test]
    fn a_derived_code_is_taken() {
        let (file, line) = Colour::CODE.place();
        let expected =
            format!("error code print.quota.colour is declared twice: {file}:{line} and mine.rs:4");
        assert_eq!(refusal(&[&DERIVED]).message(), expected);
    }

    #[test]
    fn a_code_that_is_not_of_the_form_is_refused_with_its_place() {
        assert!(refusal(&[&SHOUTED]).message().starts_with("loud.rs:5 declares error code \"Clash.Loud\""));
    }
}
