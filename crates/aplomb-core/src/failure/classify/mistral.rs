//! Mistral's codes: numbers, and types of its own.
//!
//! Source: the types in Mistral's answers as its client and its users' reports show them
//! (<https://docs.mistral.ai/api/>): `service_tier_capacity_exceeded` with 3505, `invalid_model` with 1500,
//! `invalid_request_message_order` with 3230.

use super::rule::{Opinion, Rule, Test, anywhere};
use crate::failure::Reason;

pub(super) const RULES: &[Rule] = &[CAPACITY];

const CAPACITY: Rule = Rule {
    id: "mistral.capacity",
    why: "The service tier has no capacity for this model at the moment.",
    test: Test::Names {
        at: anywhere,
        names: &["service_tier_capacity_exceeded"],
        then: Opinion::retry(Reason::Overloaded),
    },
};
