//! runtime.md §4: the events.

use std::collections::BTreeSet;

use aplomb_core::event::{Event, EventName, names};
use aplomb_core::run::Identity;
use serde_json::{Map, Value, json};

use crate::page::*;

#[test]
fn every_event_of_the_contract_is_in_the_code_and_nothing_more_on_either_side() {
    let contract: BTreeSet<String> = event_rows().into_keys().chain(own_events().into_keys()).collect();
    let ours: Vec<&str> = names::ALL.iter().map(|name| name.as_str()).collect();
    assert_eq!(set(ours.iter().copied()), contract);
    assert_eq!(ours.len(), contract.len(), "an event stands twice");
}

#[test]
fn every_row_of_the_event_table_is_the_contracts_row() {
    let mut wrong = vec![];
    for (name, row) in event_rows() {
        let Some(event) = EventName::find(&name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let ours = EventRow {
            required: set(event.required().iter().copied()),
            optional: set(event.optional().iter().copied()),
        };
        if ours != row {
            wrong.push(format!("{name}\n  contract {row:?}\n  code     {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn aplombs_own_events_carry_the_payload_that_the_contract_states() {
    let own = own_events();
    assert_eq!(own["retry.decided"].as_ref().unwrap().len(), 10);
    for (name, fields) in own {
        let event = EventName::find(&name).unwrap_or_else(|| panic!("{name} is missing"));
        // "At least": where the contract states no payload, there may be one.
        if let Some(fields) = fields {
            assert_eq!(set(event.required().iter().copied()), fields, "{name}");
        }
    }
}

#[test]
fn every_event_that_says_failed_carries_the_error_details() {
    // errors.md §2: "… and so does the `error_details` field of every `*.failed` event."
    let failed: Vec<_> = names::ALL.iter().filter(|name| name.as_str().ends_with("failed")).collect();
    assert!(failed.len() >= 6);
    for name in failed {
        assert!(name.required().contains(&"error_details"), "{name}");
    }
    // "`run.resume_attempted` and `run.resume_exhausted` carry `error_code`."
    for name in [names::RUN_RESUME_ATTEMPTED, names::RUN_RESUME_EXHAUSTED] {
        assert!(name.required().contains(&"error_code"), "{name}");
    }
}

#[test]
fn no_payload_field_is_both_required_and_optional_or_stands_twice() {
    for name in names::ALL {
        let all: Vec<&str> = name.required().iter().chain(name.optional()).copied().collect();
        assert_eq!(set(all.iter().copied()).len(), all.len(), "{name}");
    }
}

#[test]
fn a_payload_is_complete_with_its_required_fields_and_incomplete_without_any_one_of_them() {
    let payload = |fields: &[&str]| -> Map<String, Value> {
        fields.iter().map(|field| ((*field).to_owned(), json!("x"))).collect()
    };
    for name in names::ALL {
        assert_eq!(EventName::find(name.as_str()), Some(*name));
        assert_eq!(name.violations(&payload(name.required())), Vec::<String>::new(), "{name}");
        let all: Vec<&str> = name.required().iter().chain(name.optional()).copied().collect();
        assert_eq!(name.violations(&payload(&all)), Vec::<String>::new(), "{name}");
        for missing in name.required() {
            let mut payload = payload(&all);
            payload.remove(*missing);
            assert!(!name.violations(&payload).is_empty(), "{name} without {missing}");
        }
    }
}

#[test]
fn every_event_has_exactly_the_envelope_of_the_contract() {
    let text = section(&read(RUNTIME), 4);
    let start = text.find("Every event:").expect("the sentence");
    let envelope = set(quoted(text[start..].split('.').next().unwrap()));
    assert_eq!(envelope.len(), 7);
    let identity = Identity { run_id: "r".into(), session_id: "s".into(), agent_id: "a".into() };
    for name in names::ALL {
        let event = serde_json::to_value(Event::new(*name, &identity, 4, 5, Map::new())).unwrap();
        assert_eq!(keys(&event), envelope, "{name}");
        assert_eq!(event["name"], name.as_str());
        assert_eq!(
            (&event["run_id"], &event["session_id"], &event["agent_id"]),
            (&json!("r"), &json!("s"), &json!("a"))
        );
        assert_eq!((&event["sequence"], &event["timestamp_ms"]), (&json!(4), &json!(5)));
    }
}
