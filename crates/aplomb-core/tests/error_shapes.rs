//! The shapes of an error, whatever text, nesting or context it is made of: `docs/spec/errors.md` §2.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may")]

use std::error::Error as StdError;
use std::fmt;

use aplomb_core::error::{AgentError, Code, Error, ErrorDetails, codes};
use aplomb_core::failure::{Anomaly, BODY_LIMIT, Failure, Phase};
use aplomb_core::near::{did_you_mean, near};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// The most characters of a message that leave the process; one more says that there were more.
const MESSAGE_LIMIT: usize = 4_096;

/// How many causes are followed.
const MAX_DEPTH: usize = 16;

// ---- What errors are made of.

/// Any character, those that terminals and parsers stumble over more often than others.
fn character() -> impl Strategy<Value = char> {
    let odd = "\0\u{1}\u{7}\u{8}\t\n\r\u{b}\u{c}\u{1b}\"\\{}\u{7f}\u{85}\u{a0}\u{200b}\u{202e}\u{2028}\u{2029}\u{feff}\u{fffd}\u{ffff}\u{10ffff}";
    prop_oneof![3 => any::<char>(), 2 => select(odd.chars().collect::<Vec<_>>()), 2 => prop::char::range(' ', '~')]
}

fn text() -> impl Strategy<Value = String> {
    vec(character(), 0..60).prop_map(String::from_iter)
}

/// A text of up to a megabyte.
fn long_text() -> impl Strategy<Value = String> {
    (vec(character(), 1..40).prop_map(String::from_iter), 0..=1_000_000_usize)
        .prop_map(|(piece, length)| piece.repeat(length / piece.len()))
}

fn code() -> impl Strategy<Value = Code> {
    select(codes::ALL)
}

/// JSON without fractions, which no text gives back to the last bit.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// A foreign error with a text and a cause.
#[derive(Debug)]
struct Foreign {
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Foreign {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// How an error is put around another one.
#[derive(Debug, Clone, Copy)]
enum Wrap {
    /// Ours around it.
    Ours,
    /// Ours around a foreign one around it.
    Foreign,
}

fn wrap() -> impl Strategy<Value = Wrap> {
    select(&[Wrap::Ours, Wrap::Foreign][..])
}

/// An error with causes and context.
fn error() -> impl Strategy<Value = Error> {
    let layer = (code(), text(), text(), wrap(), btree_map(text(), json_value(), 0..3));
    vec(layer, 1..6).prop_map(|layers| {
        let mut error: Option<Error> = None;
        for (code, message, hint, wrap, context) in layers {
            let mut next = Error::new(code, message.clone()).with_hint(hint);
            for (field, value) in context {
                next = next.with_context(&field, value);
            }
            error = Some(match (error, wrap) {
                (None, _) => next,
                (Some(cause), Wrap::Ours) => next.with_cause(cause),
                (Some(cause), Wrap::Foreign) => {
                    next.with_foreign_cause(Foreign { text: message, source: Some(Box::new(cause)) })
                }
            });
        }
        error.unwrap()
    })
}

/// Every way in which an error is shown; what counts is that each of them ends.
fn show(error: &Error) -> usize {
    let shown = format!("{error}{error:?}{error:#?}{:?}", error.clone());
    let details = error.details();
    let written = serde_json::to_string(error).unwrap() + &serde_json::to_string(&details).unwrap();
    let read = Error::from(details);
    shown.len() + written.len() + read.to_string().len()
}

fn depth(details: &ErrorDetails) -> usize {
    details.cause.as_ref().map_or(0, |cause| 1 + depth(cause))
}

/// A message as `to_dict` must give it: the first line, and no more of it than the limit.
fn check_message(message: &str, original: &str) -> Result<(), TestCaseError> {
    let line = original.split(['\n', '\r']).next().unwrap();
    prop_assert!(!message.contains('\n'));
    let length = line.chars().count();
    if length <= MESSAGE_LIMIT {
        prop_assert_eq!(message, line);
    } else {
        let kept: String = line.chars().take(MESSAGE_LIMIT).collect();
        prop_assert_eq!(message, format!("{kept}…"));
    }
    Ok(())
}

proptest! {
    #[test]
    fn an_error_of_any_text_can_be_made_wrapped_shown_and_written(error in error()) {
        show(&error);
        let dict = error.to_dict();
        check_message(&dict.message, error.message())?;
        prop_assert_eq!(dict.code.as_str(), error.code().as_str());
        prop_assert_eq!(dict.retryable, error.code().retryable());
    }

    #[test]
    fn details_come_back_from_json_as_they_were(error in error()) {
        let details = error.details();
        let written = serde_json::to_string(&details).unwrap();
        let read: ErrorDetails = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(&read, &details);
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), written);
        // By way of a value, and by way of an error.
        prop_assert_eq!(&serde_json::from_value::<ErrorDetails>(serde_json::to_value(&details).unwrap()).unwrap(), &details);
        prop_assert_eq!(&Error::from(details.clone()).details(), &details);
    }

    #[test]
    fn what_a_newer_version_wrote_comes_back_as_it_was(
        code in "[a-z]{1,8}\\.[a-z_]{1,8}", type_name in text(), message in text(), retryable in any::<bool>(),
        hint in prop::option::of(text()), context in btree_map(text(), json_value(), 0..4),
    ) {
        let mut context = Map::from_iter(context);
        for field in aplomb_core::error::IDENTIFIERS {
            context.entry(field).or_insert(Value::Null);
        }
        let message = message.replace(['\n', '\r'], " ");
        let newer = json!({
            "code": code, "message": message, "hint": hint, "docs_url": null, "retryable": retryable,
            "context": context, "type": type_name, "cause": null,
        });
        let details: ErrorDetails = serde_json::from_value(newer.clone()).unwrap();
        prop_assert_eq!(&serde_json::to_value(&details).unwrap(), &newer);
        let error = Error::from(details);
        prop_assert_eq!(error.retryable(), retryable);
        prop_assert_eq!(serde_json::to_value(error.details()).unwrap(), newer);
    }

    #[test]
    fn an_error_cannot_be_told_from_one_that_was_written_and_read(error in error()) {
        let read = Error::from(error.details());
        prop_assert_eq!(read.code(), error.code());
        prop_assert_eq!(read.hint(), error.hint());
        prop_assert_eq!(read.stop_reason(), error.stop_reason());
        let context = error.details().dict.context;
        for field in context.keys() {
            prop_assert_eq!(read.context(field), error.context(field));
        }
    }

    #[test]
    fn context_that_is_nearer_to_the_cause_stays(one in json_value(), other in json_value()) {
        let error = Error::new(codes::TOOL_ERROR, "").with_context("run_id", one.clone());
        let expected = if one.is_null() { &other } else { &one };
        prop_assert_eq!(&error.or_context("run_id", other.clone()).to_dict().context["run_id"], expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_megabyte_of_message_is_cut_to_its_first_line_and_4096_characters(code in code(), message in long_text()) {
        let error = Error::new(code, message.clone());
        prop_assert_eq!(error.message(), message.as_str());
        let dict = error.to_dict();
        check_message(&dict.message, &message)?;
        prop_assert!(dict.message.chars().count() <= MESSAGE_LIMIT + 1);
        // The same holds for causes, ours and foreign.
        let foreign = Foreign { text: message.clone(), source: None };
        for around in [
            Error::new(codes::PATTERN_ERROR, "around").with_foreign_cause(foreign),
            Error::new(codes::PATTERN_ERROR, "around").with_cause(error),
        ] {
            check_message(&around.details().cause.unwrap().dict.message, &message)?;
        }
    }

    #[test]
    fn a_body_of_any_length_and_bytes_keeps_no_more_than_its_limit(
        piece in vec(any::<u8>(), 1..64), length in 0..=10_000_000_usize, status in 100..=999_u16,
    ) {
        let body = piece.repeat(length / piece.len());
        check_body(&Failure::status(status, &body), &body)?;
    }

    #[test]
    fn a_hundred_causes_are_shown_and_sixteen_of_them_written(wraps in vec(wrap(), 100), texts in vec(text(), 100)) {
        let mut error = Error::new(codes::TOOL_ERROR, "the first");
        for (wrap, text) in wraps.into_iter().zip(texts) {
            let next = Error::new(codes::PATTERN_ERROR, text.clone());
            error = match wrap {
                Wrap::Ours => next.with_cause(error),
                Wrap::Foreign => next.with_foreign_cause(Foreign { text, source: Some(Box::new(error)) }),
            };
        }
        prop_assert_eq!(depth(&error.details()), MAX_DEPTH);
        prop_assert!(show(&error) > 0);
        // In the process the whole chain is there.
        let mut count = 0;
        let mut cause = StdError::source(&error);
        while let Some(next) = cause {
            count += 1;
            cause = next.source();
        }
        prop_assert!((100..=200).contains(&count), "{}", count);
    }
}

fn check_body(failure: &Failure, body: &[u8]) -> Result<(), TestCaseError> {
    let mut failure = failure.clone();
    failure.seal([]);
    prop_assert!(failure.body.len() <= BODY_LIMIT, "{}", failure.body.len());
    // Not cut short for nothing: what is white space or a credential's form does not count.
    if body.len() <= BODY_LIMIT && body.iter().all(u8::is_ascii_alphabetic) {
        prop_assert_eq!(failure.body.as_bytes(), body);
    }
    prop_assert!(failure.to_string().chars().count() < 1_000);
    prop_assert!(!failure.to_string().contains('\n'));
    Ok(())
}

#[test]
fn ten_megabytes_of_body_are_cut_to_eight_kilobytes_between_characters() {
    for piece in
        [&b"x"[..], "é".as_bytes(), "日".as_bytes(), "🦀".as_bytes(), b"\xff", b"a\xf0\x9f", b"\0", b"{"]
    {
        let body = piece.repeat(10 * 1024 * 1024 / piece.len());
        for failure in
            [Failure::status(500, &body), Failure::anomaly(Phase::Body, Anomaly::MalformedBody, &body)]
        {
            check_body(&failure, &body).unwrap();
        }
    }
    let mut failure = Failure::status(500, "é".repeat(BODY_LIMIT).as_bytes());
    failure.seal([]);
    assert_eq!(failure.body, "é".repeat(BODY_LIMIT / 2));
}

/// `BODY_LIMIT`: "How much of a body a failure keeps, in bytes."
#[test]
fn a_message_of_ten_megabytes_is_kept_no_longer_than_the_body_that_it_stands_in() {
    let body = json!({ "error": { "message": "x".repeat(10 * 1024 * 1024), "type": "server_error" } });
    let mut failure = Failure::status(500, body.to_string().as_bytes());
    failure.seal([]);
    assert!(failure.body.len() <= BODY_LIMIT);
    let written = serde_json::to_string(&failure).unwrap().len();
    assert!(written <= 4 * BODY_LIMIT, "{written} bytes are kept");
}

/// errors.md §2: "`hint` (one line: what to do about it)".
#[test]
fn a_hint_is_one_line_outside_of_the_process() {
    let error = Error::new(codes::TOOL_ERROR, "no").with_hint("look here\nand there");
    assert_eq!(error.to_dict().hint.unwrap().lines().count(), 1);
    assert_eq!(error.to_string().lines().count(), 2, "{error}");
}

/// errors.md §2: "`message` is the first line". A terminal takes a lone carriage return for the end of one.
#[test]
fn a_carriage_return_ends_a_line() {
    assert_eq!(Error::new(codes::TOOL_ERROR, "first\rsecond").to_dict().message, "first");
}

#[test]
fn a_foreign_error_that_is_its_own_cause_does_not_go_on_for_ever() {
    #[derive(Debug)]
    struct Cycle;
    impl fmt::Display for Cycle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round and round")
        }
    }
    impl StdError for Cycle {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(self)
        }
    }
    let error = Error::foreign(codes::PATTERN_ERROR, Cycle);
    assert_eq!(depth(&error.details()), MAX_DEPTH);
    assert!(show(&error) > 0);
}

#[test]
fn a_programs_own_error_has_the_same_bounds() {
    #[derive(Debug)]
    struct Own(Foreign);
    impl fmt::Display for Own {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
    impl StdError for Own {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.0.source()
        }
    }
    impl AgentError for Own {
        const CODE: Code = codes::TOOL_PERMANENT;

        fn context(&self) -> Map<String, Value> {
            Map::from_iter([("size".to_owned(), json!(self.0.text.len()))])
        }
    }
    let mut source: Option<Box<dyn StdError + Send + Sync>> = None;
    for number in 0..100 {
        source = Some(Box::new(Foreign { text: format!("cause {number}"), source }));
    }
    let error = Error::custom(Own(Foreign { text: "x".repeat(1_000_000), source }));
    let details = error.details();
    assert_eq!(depth(&details), MAX_DEPTH);
    assert_eq!(details.dict.message.chars().count(), MESSAGE_LIMIT + 1);
    assert_eq!(details.dict.context["size"], 1_000_000);
    assert_eq!(details.cause.unwrap().dict.message, "cause 99");
    assert!(error.downcast_ref::<Own>().is_some());
}

#[test]
fn an_error_is_one_word_wide_and_so_is_a_result_of_it() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
}

// ---- Typed accessors.

/// Every field that an accessor reads.
const FIELDS: [&str; 15] = [
    "retry_after_ms",
    "resume_at",
    "status",
    "request_id",
    "excerpt",
    "setting",
    "limit_ms",
    "where",
    "kind",
    "current",
    "limit",
    "attempts",
    "last_validation_error",
    "output_type",
    "reason",
];

proptest! {
    #[test]
    fn accessors_read_what_was_put_and_nothing_else(
        code in code(),
        values in vec(prop::option::of(prop_oneof![json_value(), any::<u16>().prop_map(Value::from), text().prop_map(Value::from)]), FIELDS.len()),
    ) {
        let mut error = Error::new(code, "");
        let mut put = Map::new();
        for (field, value) in FIELDS.into_iter().zip(values) {
            if let Some(value) = value {
                put.insert(field.to_owned(), value.clone());
                error = error.with_context(field, value);
            }
        }
        let number = |field: &str| put.get(field).and_then(Value::as_u64);
        let fraction = |field: &str| put.get(field).and_then(Value::as_f64);
        let text = |field: &str| put.get(field).and_then(Value::as_str);

        prop_assert_eq!(error.wait().map(|wait| wait.retry_after_ms), number("retry_after_ms"));
        if let Some(wait) = error.wait() {
            prop_assert_eq!(wait.resume_at_ms, number("resume_at"));
        }
        prop_assert_eq!(error.http().map(|http| http.status), number("status").and_then(|status| status.try_into().ok()));
        if let Some(http) = error.http() {
            prop_assert_eq!((http.request_id, http.excerpt), (text("request_id"), text("excerpt")));
        }
        prop_assert_eq!(error.time_limit().map(|limit| limit.setting), text("setting"));
        if let Some(limit) = error.time_limit() {
            prop_assert_eq!((limit.limit_ms, limit.waiting_for), (number("limit_ms"), text("where")));
        }
        let limit = error.limit().map(|limit| (limit.kind, limit.current, limit.limit));
        let expected = fraction("current").zip(fraction("limit")).map(|(current, limit)| (text("kind"), current, limit));
        prop_assert_eq!(limit, expected);
        let validation = error.output_validation().map(|wrong| (wrong.attempts, wrong.last_error, wrong.output_type));
        let expected = number("attempts").zip(text("last_validation_error")).map(|(attempts, last)| (attempts, last, text("output_type")));
        prop_assert_eq!(validation, expected);
        prop_assert_eq!(error.reason(), text("reason"));
    }
}

#[test]
fn accessors_read_the_fields_that_the_contract_names() {
    let error = Error::new(codes::LLM_RATE_LIMIT, "")
        .with_context("retry_after_ms", 2_000)
        .with_context("resume_at", 1_700_000_002_000_u64)
        .with_context("status", 429)
        .with_context("request_id", "req_1")
        .with_context("excerpt", "slow down");
    let wait = error.wait().unwrap();
    assert_eq!((wait.retry_after_ms, wait.resume_at_ms), (2_000, Some(1_700_000_002_000)));
    let http = error.http().unwrap();
    assert_eq!((http.status, http.request_id, http.excerpt), (429, Some("req_1"), Some("slow down")));
    assert!(error.time_limit().is_none() && error.limit().is_none() && error.output_validation().is_none());

    let error = Error::new(codes::EXECUTION_TIMEOUT, "")
        .with_context("limit_ms", 300)
        .with_context("where", "tool probe")
        .with_context("setting", "timeout");
    let limit = error.time_limit().unwrap();
    assert_eq!(
        (limit.setting, limit.limit_ms, limit.waiting_for),
        ("timeout", Some(300), Some("tool probe"))
    );
    assert!(error.limit().is_none() && error.http().is_none() && error.wait().is_none());

    let error = Error::new(codes::EXECUTION_BUDGET_EXHAUSTED, "")
        .with_context("kind", "cost")
        .with_context("current", 1.25)
        .with_context("limit", 1);
    let limit = error.limit().unwrap();
    assert_eq!((limit.kind, limit.current, limit.limit), (Some("cost"), 1.25, 1.0));

    let error = Error::new(codes::EXECUTION_OUTPUT_VALIDATION, "")
        .with_context("attempts", 3)
        .with_context("last_validation_error", "`n` is missing")
        .with_context("output_type", "Invoice");
    let wrong = error.output_validation().unwrap();
    assert_eq!((wrong.attempts, wrong.last_error, wrong.output_type), (3, "`n` is missing", Some("Invoice")));
    // They survive the way out of the process and back.
    let read = Error::from(error.details());
    assert_eq!(read.output_validation(), error.output_validation());
    assert!(Error::new(codes::EXECUTION_OUTPUT_VALIDATION, "").output_validation().is_none());
}

// ---- Near matches.

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(character(), 0..12).prop_map(String::from_iter),
        "[a-zA-Z_.]{0,12}".prop_map(|name| name),
        code().prop_map(|code| code.as_str().to_owned()),
    ]
}

proptest! {
    #[test]
    fn near_names_are_at_most_three_of_the_candidates_and_always_the_same(
        name in name(), candidates in vec(name(), 0..20), turned in any::<prop::sample::Index>(),
    ) {
        let all = || candidates.iter().map(String::as_str);
        let found = near(&name, all());
        prop_assert!(found.len() <= 3);
        prop_assert!(found.iter().all(|found| candidates.iter().any(|candidate| candidate == found)));
        // Whatever order they come in.
        let mut other = candidates.clone();
        if !other.is_empty() {
            let middle = turned.index(other.len());
            other.rotate_left(middle);
        }
        prop_assert_eq!(&near(&name, other.iter().map(String::as_str)), &found);
        prop_assert_eq!(did_you_mean(&name, all()).is_some(), !found.is_empty());
        // The name itself is the nearest, if it is one of them.
        if !name.is_empty() && candidates.contains(&name) {
            let first = found.first().map(|found| found.to_lowercase());
            prop_assert_eq!(first, Some(name.to_lowercase()));
        }
    }

    #[test]
    fn case_makes_no_name_farther(name in "[a-zA-Z_.]{0,16}", candidates in vec("[a-z_.]{1,16}", 0..10)) {
        let all = || candidates.iter().map(String::as_str);
        prop_assert_eq!(near(&name.to_uppercase(), all()), near(&name.to_lowercase(), all()));
    }

    #[test]
    fn one_slip_of_the_finger_finds_every_code(code in code(), at in any::<prop::sample::Index>(), slip in 0..4_u8, key in prop::char::range('a', 'z')) {
        let mut name: Vec<char> = code.as_str().chars().collect();
        let at = at.index(name.len() - 1);
        match slip {
            0 => name.insert(at, key),
            1 => { name.remove(at); }
            2 => name[at] = key,
            _ => name.swap(at, at + 1),
        }
        let name = String::from_iter(name);
        let found = near(&name, codes::ALL.iter().map(|code| code.as_str()));
        prop_assert!(found.contains(&code.as_str()), "{} finds {:?}", name, found);
    }

    #[test]
    fn a_silly_name_finds_no_code(name in "[0-9#!]{0,40}") {
        prop_assert_eq!(near(&name, codes::ALL.iter().map(|code| code.as_str())), [""; 0]);
    }
}
