//! What a derived error is to the rest of Aplomb.

use std::error::Error as StdError;
use std::io;

use aplomb::error::{self, AgentError as _, Code};
use aplomb::{Error, StopReason, codes};
use serde_json::json;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent", hint = "ask for another card")]
#[error("card {last4} was declined")]
struct Declined {
    #[context]
    last4: String,
    #[source]
    cause: io::Error,
}

fn declined() -> Error {
    Declined { last4: "4242".to_owned(), cause: io::Error::other("issuer says no") }.into()
}

/// The root of a family, a unit struct.
#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "warehouse.error", parent = "tool.retryable")]
#[error("the warehouse failed")]
struct WarehouseError;

/// Below another type, with all settings.
#[derive(Debug, aplomb::AgentError)]
#[agent_error(
    code = "warehouse.full",
    parent = WarehouseError,
    retryable = false,
    docs_url = "https://example.com/full"
)]
#[error("no room for {type:?}, {{{free}}} left")]
struct Full {
    #[context]
    r#type: Option<&'static str>,
    #[context]
    free: u8,
}

#[test]
fn the_details_hold_everything_that_was_declared() {
    assert_eq!(
        serde_json::to_value(declined().details()).unwrap(),
        json!({
            "code": "billing.declined",
            "type": "Declined",
            "message": "card 4242 was declined",
            "hint": "ask for another card",
            "docs_url": null,
            "retryable": false,
            "context": {
                "last4": "4242", "tool_name": null, "agent_id": null, "session_id": null, "run_id": null,
                "tool_id": null, "step_number": null,
            },
            "cause": {
                "code": "openagents.error",
                "type": "Error",
                "message": "issuer says no",
                "hint": null,
                "docs_url": null,
                "retryable": false,
                "context": {
                    "agent_id": null, "session_id": null, "run_id": null, "tool_id": null, "step_number": null,
                },
                "cause": null,
            },
        })
    );
}

#[test]
fn a_question_mark_makes_it_an_error_that_is_still_the_programs_own() {
    fn charge() -> Result<(), Error> {
        Err(Declined { last4: "0000".to_owned(), cause: io::ErrorKind::TimedOut.into() })?
    }
    let error = charge().unwrap_err();
    let ours = error.downcast_ref::<Declined>().unwrap();
    assert_eq!((ours.last4.as_str(), ours.cause.kind()), ("0000", io::ErrorKind::TimedOut));
    assert!(error.downcast_ref::<WarehouseError>().is_none());
}

#[test]
fn it_is_its_parent_and_all_above() {
    let error = declined();
    for ancestor in [Declined::CODE, codes::TOOL_PERMANENT, codes::TOOL_ERROR, codes::OPENAGENTS_ERROR] {
        assert!(error.is_a(ancestor), "{ancestor}");
    }
    assert!(!error.is_a(codes::TOOL_RETRYABLE));
    assert_eq!(error.stop_reason(), StopReason::Failed);
}

#[test]
fn a_parent_of_the_programs_own_stands_between_it_and_the_table() {
    assert_eq!(Full::CODE.parent(), Some(WarehouseError::CODE));
    assert_eq!(WarehouseError::CODE.parent(), Some(codes::TOOL_RETRYABLE));
    assert!(Full::CODE.is_a(codes::TOOL_RETRYABLE));
}

#[test]
fn retryable_is_the_parents_unless_stated() {
    assert!(Error::from(WarehouseError).retryable());
    assert!(!Error::from(Full { r#type: None, free: 0 }).retryable());
    assert!(!declined().retryable());
}

#[test]
fn hint_and_docs_are_lines_of_the_text() {
    let full = Error::from(Full { r#type: Some("pallet"), free: 3 });
    assert_eq!(full.to_string(), "no room for Some(\"pallet\"), {3} left\n  docs: https://example.com/full");
    assert_eq!(full.to_dict().docs_url.as_deref(), Some("https://example.com/full"));
    assert_eq!(declined().to_string(), "card 4242 was declined\n  hint: ask for another card");
}

#[test]
fn context_fields_are_json_under_their_own_names_after_the_inherited_ones() {
    let full = Error::from(Full { r#type: None, free: 3 });
    assert_eq!(Full::CODE.fields(), ["tool_name", "type", "free"]);
    assert_eq!((full.context("type"), full.context("free")), (None, Some(&json!(3))));
}

#[test]
fn it_is_found_and_listed_with_its_place() {
    assert_eq!(Code::find("billing.declined"), Some(Declined::CODE));
    let listed = error::all().filter(|code| *code == Declined::CODE).count();
    assert_eq!(listed, 1);
    let (file, line) = Declined::CODE.place();
    assert!(file.ends_with("custom_errors/derived.rs"), "{file}");
    assert_eq!(line, 10); // of its derive
    assert!(error::check_declared(&[]).is_ok());
}

#[test]
fn its_details_come_back_as_its_code() {
    let written = serde_json::to_string(&declined().details()).unwrap();
    let read = Error::from(serde_json::from_str::<error::ErrorDetails>(&written).unwrap());
    assert_eq!(read.code(), Declined::CODE);
    assert_eq!(serde_json::to_string(&read.details()).unwrap(), written);
}

mod shapes {
    use super::*;

    #[derive(Debug, aplomb::AgentError)]
    #[agent_error(code = "shape.tuple", parent = "user.error")]
    #[error("{0:>3} of {1}, {{0}}")]
    struct Tuple(u8, u8, #[source] Option<Error>);

    #[test]
    fn a_tuples_fields_have_numbers_and_its_source_may_be_missing() {
        assert_eq!(Tuple(1, 2, None).to_string(), "  1 of 2, {0}");
        assert!(Tuple(1, 2, None).source().is_none());
        let caused = Error::from(Tuple(1, 2, Some(declined())));
        // An error of Aplomb's stays whole as a cause.
        assert_eq!(caused.details().cause.unwrap().dict.code, "billing.declined");
    }

    type Boxed = Box<dyn StdError + Send + Sync>;

    #[derive(Debug, aplomb::AgentError)]
    #[agent_error(code = "shape.boxed", parent = "user.error")]
    #[error("boxed")]
    struct Box_ {
        source: Boxed,
    }

    #[test]
    fn a_field_called_source_is_the_source_and_what_is_in_a_box_is_what_counts() {
        let error = Box_ { source: Box::new(io::Error::other("inside")) };
        assert!(error.source().unwrap().is::<io::Error>());
    }

    #[derive(Debug, aplomb::AgentError)]
    #[agent_error(code = "shape.displayed", parent = "user.error")]
    struct Displayed {
        formatter: &'static str,
    }

    impl std::fmt::Display for Displayed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.formatter)
        }
    }

    #[test]
    fn without_a_text_the_types_own_display_is_the_message() {
        assert_eq!(Error::from(Displayed { formatter: "by hand" }).message(), "by hand");
    }

    #[derive(Debug, aplomb::AgentError)]
    #[agent_error(code = "shape.odd", parent = "user.error")]
    #[error("odd")]
    struct Odd {
        #[context]
        map: std::collections::BTreeMap<(u8, u8), u8>,
    }

    #[test]
    fn a_value_that_json_cannot_hold_shows_up_as_the_reason() {
        let error = Error::from(Odd { map: [((1, 2), 3)].into() });
        assert_eq!(error.context("map"), Some(&json!("not JSON: key must be a string")));
    }
}
