//! Checks a script before it is played, so that a mistake in it is an error about the script and not a riddle
//! in a run. Knows the language of scripts; renders nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fits::{self, Misfit, has_no_body, is_empty};
use super::read::ScriptError;
use super::template::{self, BUILT_IN, Captures};
use super::{Fault, HttpReply, Message, Mishap, Random, Reply, RetryAfter, Script, Step, Usage, When};

const HEADER_VALUE: &str = "expected a value without line breaks and control characters";

/// A hundred years in seconds, as far as a date of a script may be away.
const CENTURY: u64 = 100 * 366 * 24 * 60 * 60;

/// Every rule, in the order in which a reader meets the fields.
pub(super) fn script(script: &Script) -> Result<(), ScriptError> {
    for name in script.captures.keys() {
        capture_name(name)?;
    }
    Captures::compile(&script.captures)?;
    if script.run_header.as_deref().is_some_and(|name| !is_token(name)) {
        return Err(ScriptError::new("run_header", "expected a header name: ASCII letters, digits and -"));
    }
    if script.steps.is_empty() {
        return Err(ScriptError::new("steps", "expected at least one step"));
    }
    for (index, step) in script.steps.iter().enumerate() {
        Checker { captures: &script.captures, place: format!("steps[{index}]") }.step(step)?;
    }
    script.random.as_ref().map_or(Ok(()), |random| self::random(random, script))
}

fn random(random: &Random, script: &Script) -> Result<(), ScriptError> {
    if !(0.0..=1.0).contains(&random.rate) {
        return Err(ScriptError::new(
            "random.rate",
            format!("expected a share from 0 to 1, not {}", random.rate),
        ));
    }
    if random.faults.is_empty() {
        return Err(ScriptError::new("random.faults", "expected one at least"));
    }
    for (index, mishap) in random.faults.iter().enumerate() {
        Checker { captures: &script.captures, place: format!("random.faults[{index}]") }.mishap(mishap)?;
    }
    Ok(())
}

fn capture_name(name: &str) -> Result<(), ScriptError> {
    let place = format!("captures.{name}");
    if BUILT_IN.contains(&name) {
        return Err(ScriptError::new(
            place,
            format!("expected another name; {name} has a meaning of its own"),
        ));
    }
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(ScriptError::new(place, "expected a name of ASCII letters, digits and _"));
    }
    Ok(())
}

/// Checks one step, which it knows the place of.
struct Checker<'a> {
    captures: &'a BTreeMap<String, String>,
    place: String,
}

impl Checker<'_> {
    fn error(&self, field: &str, expected: impl Into<String>) -> ScriptError {
        ScriptError::new(format!("{}.{field}", self.place), expected)
    }

    fn step(&self, step: &Step) -> Result<(), ScriptError> {
        step.when.as_ref().map_or(Ok(()), |when| self.when(when))?;
        self.reply(&step.reply)?;
        if let Some(fault) = &step.fault {
            self.fault(fault, &step.reply)?;
        }
        if step.repeat == 0 {
            return Err(
                self.error("repeat", "expected 1 or more; leave the step out if it is to serve no request")
            );
        }
        Ok(())
    }

    fn mishap(&self, mishap: &Mishap) -> Result<(), ScriptError> {
        if mishap.weight == 0 {
            return Err(
                self.error("weight", "expected 1 or more; leave the fault out if it is never to happen")
            );
        }
        match (&mishap.reply, &mishap.fault) {
            (None, None) => Err(ScriptError::new(self.place.as_str(), "expected a reply or a fault")),
            (Some(reply), None) => self.reply(reply),
            (Some(reply), Some(fault)) => self.reply(reply).and_then(|()| self.fault(fault, reply)),
            (None, Some(fault)) => fits::numbers(fault).map_err(|misfit| self.misfit(&misfit)),
        }
    }

    fn reply(&self, reply: &Reply) -> Result<(), ScriptError> {
        match reply {
            Reply::Http(http) => self.http(http),
            Reply::Message(message) => self.message(message),
        }
    }

    fn when(&self, when: &When) -> Result<(), ScriptError> {
        let conditions = [("input_contains", &when.input_contains), ("run_contains", &when.run_contains)];
        if conditions.iter().all(|(_, text)| text.is_none()) {
            return Err(self.error("when", "expected input_contains or run_contains"));
        }
        match conditions.iter().find(|(_, text)| text.as_deref() == Some("")) {
            Some((name, _)) => Err(self.error(&format!("when.{name}"), "expected a text that is not empty")),
            None => Ok(()),
        }
    }

    fn http(&self, http: &HttpReply) -> Result<(), ScriptError> {
        if !(200..=599).contains(&http.status) {
            let expected = format!("expected a status from 200 to 599, not {}", http.status);
            return Err(self.error("reply.http.status", expected));
        }
        for (name, value) in &http.headers {
            let place = format!("reply.http.headers.{name}");
            if !is_token(name) {
                return Err(self.error(&place, "expected a header name: ASCII letters, digits and -"));
            }
            if ["content-length", "transfer-encoding"].contains(&name.to_ascii_lowercase().as_str()) {
                return Err(
                    self.error(&place, "expected no header about the body's length; use a fault to break it")
                );
            }
            if !is_header_value(value) {
                return Err(self.error(&place, HEADER_VALUE));
            }
        }
        if let Some(retry_after) = &http.retry_after {
            self.retry_after(retry_after)?;
            let taken = |name: &&String| {
                ["retry-after", "retry-after-ms"].contains(&name.to_ascii_lowercase().as_str())
            };
            if let Some(name) = http.headers.keys().find(taken) {
                let place = format!("reply.http.headers.{name}");
                return Err(self.error(&place, "expected one of retry_after and this header, not both"));
            }
        }
        if has_no_body(http.status) && !is_empty(http.body.as_ref()) {
            return Err(
                self.error("reply.http.body", format!("expected no body; HTTP {} has none", http.status))
            );
        }
        Ok(())
    }

    fn retry_after(&self, retry_after: &RetryAfter) -> Result<(), ScriptError> {
        let place = |form: &str| format!("reply.http.retry_after.{form}");
        match retry_after {
            RetryAfter::Seconds(number) if !number.is_finite() => {
                Err(self.error(&place("seconds"), "expected a number"))
            }
            RetryAfter::Milliseconds(number) if !number.is_finite() => {
                Err(self.error(&place("milliseconds"), "expected a number"))
            }
            RetryAfter::Date { in_seconds, .. } if in_seconds.unsigned_abs() > CENTURY => {
                Err(self.error(&place("date.in_seconds"), "expected a date within a hundred years"))
            }
            RetryAfter::Text(text) if !is_header_value(text) => Err(self.error(&place("text"), HEADER_VALUE)),
            _ => Ok(()),
        }
    }

    fn usage(&self, usage: Usage) -> Result<(), ScriptError> {
        let cache = usage.cached_tokens.unwrap_or(0).saturating_add(usage.cache_write_tokens.unwrap_or(0));
        if cache > usage.prompt_tokens {
            let expected = format!(
                "expected {cache} or more, which cached_tokens and cache_write_tokens are together: they are \
                 part of the prompt"
            );
            return Err(self.error("reply.message.usage.prompt_tokens", expected));
        }
        Ok(())
    }

    fn message(&self, message: &Message) -> Result<(), ScriptError> {
        self.template("reply.message.text", message.text.as_deref().unwrap_or_default())?;
        self.template("reply.message.thinking", message.thinking.as_deref().unwrap_or_default())?;
        for (index, call) in message.tool_calls.iter().enumerate() {
            let place = format!("reply.message.tool_calls[{index}].arguments");
            match &call.arguments {
                // A string is not a template: it is there to be sent as it is, broken or not.
                Value::String(_) => {}
                Value::Object(_) => self.templates(&place, &call.arguments)?,
                _ => return Err(self.error(&place, "expected an object, or a string to send as it is")),
            }
        }
        message.usage.map_or(Ok(()), |usage| self.usage(usage))?;
        if message.chunk_chars == Some(0) {
            return Err(self.error("reply.message.chunk_chars", "expected 1 or more"));
        }
        Ok(())
    }

    fn templates(&self, place: &str, json: &Value) -> Result<(), ScriptError> {
        match json {
            Value::String(text) => self.template(place, text),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| self.templates(&format!("{place}[{index}]"), item)),
            Value::Object(fields) => {
                fields.iter().try_for_each(|(key, value)| self.templates(&format!("{place}.{key}"), value))
            }
            _ => Ok(()),
        }
    }

    fn template(&self, place: &str, text: &str) -> Result<(), ScriptError> {
        let is_known = |name: &str| BUILT_IN.contains(&name) || self.captures.contains_key(name);
        match template::names(text).find(|name| !is_known(name)) {
            None => Ok(()),
            Some(unknown) => {
                let known: Vec<&str> =
                    BUILT_IN.into_iter().chain(self.captures.keys().map(String::as_str)).collect();
                let known = known.join(", ");
                Err(self.error(place, format!("{{{{{unknown}}}}} is not a name; expected one of {known}")))
            }
        }
    }

    fn fault(&self, fault: &Fault, reply: &Reply) -> Result<(), ScriptError> {
        fits::numbers(fault).and_then(|()| fits::reply(fault, reply)).map_err(|misfit| self.misfit(&misfit))
    }

    fn misfit(&self, misfit: &Misfit) -> ScriptError {
        self.error(&format!("fault.{}", misfit.field), misfit.expected.as_str())
    }
}

/// RFC 9110, section 5.5.
fn is_header_value(value: &str) -> bool {
    !value.chars().any(|c| c.is_control() && c != '\t')
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(json: &str) -> String {
        Script::from_json(json).unwrap_err().to_string()
    }

    #[test]
    fn a_script_needs_a_step() {
        assert_eq!(mistake(r#"{ "steps": [] }"#), "steps: expected at least one step");
    }

    #[test]
    fn an_unknown_field_of_a_fault_is_refused_by_place() {
        let error = mistake(
            r#"{ "steps": [ { "reply": { "message": {} },
                 "fault": { "stall": { "after_events": 1, "x": 1 } } } ] }"#,
        );
        assert!(error.starts_with("steps[0].fault.stall"), "{error}");
    }

    #[test]
    fn text_after_the_script_is_refused() {
        assert!(mistake(r#"{ "steps": [ { "reply": { "message": {} } } ] } {}"#).starts_with(".: trailing"));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let script = r#"{ "captures": { "sum": "[0-9]+" },
            "steps": [ { "reply": { "message": {} } },
                       { "reply": { "message": { "text": "{{total}}" } } } ] }"#;
        assert_eq!(
            mistake(script),
            "steps[1].reply.message.text: {{total}} is not a name; expected one of input, tool_result, sum"
        );
        let arguments = r#"{ "steps": [ { "reply": { "message": { "tool_calls": [
            { "name": "f", "arguments": { "a": ["{{input}}", "{{b}}"] } } ] } } } ] }"#;
        assert!(
            mistake(arguments)
                .starts_with("steps[0].reply.message.tool_calls[0].arguments.a[1]: {{b}} is not a name"),
        );
    }

    #[test]
    fn a_string_of_arguments_is_no_template() {
        let script = r#"{ "steps": [ { "reply": { "message": { "tool_calls": [
            { "name": "f", "arguments": "{{\"a\": }}" } ] } } } ] }"#;
        Script::from_json(script).unwrap();
    }

    #[test]
    fn captures_must_compile_and_leave_the_built_in_names_alone() {
        let with = |name: &str, source: &str| {
            mistake(&format!(
                r#"{{ "captures": {{ "{name}": "{source}" }},
                      "steps": [ {{ "reply": {{ "message": {{}} }} }} ] }}"#
            ))
        };
        assert!(with("e", "(").starts_with("captures.e: expected a regular expression, but "));
        assert!(with("input", "a").starts_with("captures.input: expected another name"));
        assert!(with("a b", "a").starts_with("captures.a b: expected a name of "));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let step = |rest: &str| mistake(&format!(r#"{{ "steps": [ {{ {rest} }} ] }}"#));
        assert!(
            step(r#""reply": { "message": {} }, "repeat": 0"#).starts_with("steps[0].repeat: expected 1")
        );
        assert!(
            step(r#""reply": { "message": { "chunk_chars": 0 } }"#)
                .starts_with("steps[0].reply.message.chunk_chars")
        );
        assert!(step(r#""reply": { "http": { "status": 100 } }"#).starts_with("steps[0].reply.http.status"));
        assert!(
            step(r#""reply": { "message": {} }, "fault": { "pings": { "after_events": 1, "every_ms": 0 } }"#)
                .starts_with("steps[0].fault.pings.every_ms")
        );
        assert!(
            step(r#""reply": { "message": {} }, "fault": { "drip": { "bytes": 0, "every_ms": 0 } }"#)
                .starts_with("steps[0].fault.drip.bytes")
        );
    }

    #[test]
    fn headers_that_would_break_the_framing_are_refused() {
        let header = |header: &str| {
            mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {{ "http": {{
                      "status": 200, "headers": {{ {header} }} }} }} }} ] }}"#
            ))
        };
        assert!(header(r#""Content-Length": "3""#).starts_with("steps[0].reply.http.headers.Content-Length"));
        assert!(header(r#""a b": "3""#).contains("expected a header name"));
        assert!(header(r#""a": "x\r\nb: y""#).contains("without line breaks"));
    }

    #[test]
    fn a_fault_must_fit_its_reply() {
        let with = |http: &str, fault: &str| {
            mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {{ "http": {http} }}, "fault": {{ {fault} }} }} ] }}"#
            ))
        };
        let empty = r#"{ "status": 503 }"#;
        assert_eq!(
            with(empty, r#""cut": { "after_events": 1, "by": "fin" }"#),
            "steps[0].fault.cut: expected a reply with a body to cut"
        );
        assert!(
            with(empty, r#""end_without_terminal": { "done": true }"#)
                .contains("expected a reply with a message")
        );
        assert!(
            with(r#"{ "status": 204, "body": "x" }"#, r#""stall": { "after_events": 0 }"#)
                .contains("204 has none")
        );
        assert!(with(empty, r#""wrong_chunk_size": { "after_events": 0 }"#).contains("with a body"));
        assert!(with(empty, r#""drip": { "bytes": 1, "every_ms": 0 }"#).contains("a body to drip"));
        for fault in ["glued_events", "split_event"] {
            let mistake = with(empty, &format!(r#""{fault}": {{ "after_events": 0 }}"#));
            assert!(mistake.starts_with(&format!("steps[0].fault.{fault}: expected a reply with a message")));
        }
        for fault in ["huge_event", "flood"] {
            let mistake =
                with(r#"{ "status": 204 }"#, &format!(r#""{fault}": {{ "after_events": 0, "bytes": 9 }}"#));
            assert!(mistake.contains("expected a reply with a status that can have a body"), "{mistake}");
        }
    }

    #[test]
    fn arguments_to_cut_must_be_there() {
        let with = |reply: &str| {
            mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {reply}, "fault": {{ "cut_arguments": {{}} }} }} ] }}"#
            ))
        };
        let expected = "steps[0].fault.cut_arguments: expected a reply with";
        assert!(with(r#"{ "message": { "text": "a" } }"#).starts_with(expected));
        assert!(with(r#"{ "http": { "status": 200 } }"#).starts_with(expected));
    }

    #[test]
    fn bodies_have_a_limit() {
        for fault in ["huge_event", "flood"] {
            let mistake = mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {{ "message": {{}} }},
                     "fault": {{ "{fault}": {{ "after_events": 1, "bytes": 268435457 }} }} }} ] }}"#
            ));
            assert_eq!(mistake, format!("steps[0].fault.{fault}.bytes: expected at most 268435456"));
        }
    }

    #[test]
    fn the_header_of_runs_has_a_name() {
        let mistake = mistake(r#"{ "run_header": "x y", "steps": [ { "reply": { "message": {} } } ] }"#);
        assert!(mistake.starts_with("run_header: expected a header name"), "{mistake}");
    }

    #[test]
    fn a_lot_has_a_share_and_something_to_draw() {
        let with = |random: &str| {
            mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {{ "message": {{}} }} }} ], "random": {random} }}"#
            ))
        };
        assert!(
            with(r#"{ "seed": 1, "rate": 1.5, "faults": [] }"#).starts_with("random.rate: expected a share")
        );
        assert!(with(r#"{ "seed": 1, "rate": 1, "faults": [] }"#).starts_with("random.faults: expected one"));
        let draw = |mishap: &str| with(&format!(r#"{{ "seed": 1, "rate": 0.5, "faults": [ {mishap} ] }}"#));
        assert_eq!(draw("{}"), "random.faults[0]: expected a reply or a fault");
        assert!(draw(r#"{ "weight": 0, "fault": "silence" }"#).starts_with("random.faults[0].weight"));
        assert!(
            draw(r#"{ "fault": { "drip": { "bytes": 0, "every_ms": 0 } } }"#)
                .starts_with("random.faults[0].fault.drip.bytes")
        );
        let http = r#""reply": { "http": { "status": 503 } }"#;
        assert!(
            draw(&format!(r#"{{ {http}, "fault": "crlf" }}"#)).starts_with("random.faults[0].fault.crlf")
        );
        assert!(
            draw(r#"{ "reply": { "message": { "text": "{{x}}" } } }"#)
                .starts_with("random.faults[0].reply.message.text")
        );
    }

    #[test]
    fn a_wait_is_said_once_and_in_a_way_that_can_be_sent() {
        let with = |retry_after: &str, header: &str| {
            mistake(&format!(
                r#"{{ "steps": [ {{ "reply": {{ "http": {{ "status": 429, "headers": {{ {header} }},
                     "retry_after": {retry_after} }} }} }} ] }}"#
            ))
        };
        let twice = with(r#"{ "seconds": 1 }"#, r#""Retry-After": "2""#);
        assert!(twice.starts_with("steps[0].reply.http.headers.Retry-After: expected one of"), "{twice}");
        assert!(with(r#"{ "text": "a\nb" }"#, "").starts_with("steps[0].reply.http.retry_after.text"));
        let far = with(r#"{ "date": { "in_seconds": 99999999999 } }"#, "");
        assert!(far.starts_with("steps[0].reply.http.retry_after.date.in_seconds"), "{far}");
    }

    #[test]
    fn what_is_cached_is_part_of_the_prompt() {
        let mistake = mistake(
            r#"{ "steps": [ { "reply": { "message": { "usage": { "prompt_tokens": 9, "completion_tokens": 1,
                 "cached_tokens": 6, "cache_write_tokens": 4 } } } } ] }"#,
        );
        assert!(
            mistake.starts_with("steps[0].reply.message.usage.prompt_tokens: expected 10 or more"),
            "{mistake}"
        );
    }

    #[test]
    fn a_condition_must_say_something() {
        let with = |when: &str| {
            mistake(&format!(r#"{{ "steps": [ {{ "when": {when}, "reply": {{ "message": {{}} }} }} ] }}"#))
        };
        assert!(with("{}").starts_with("steps[0].when: expected input_contains or"));
        assert!(with(r#"{ "run_contains": "" }"#).starts_with("steps[0].when.run_contains: expected a text"));
        assert!(with(r#"{ "input_is": "" }"#).starts_with("steps[0].when"));
    }

    #[test]
    fn a_character_to_split_must_be_possible() {
        let with = |reply: &str| {
            Script::from_json(&format!(r#"{{ "steps": [ {{ "reply": {reply}, "fault": "split_utf8" }} ] }}"#))
        };
        let mistake = with(r#"{ "message": { "text": "a" } }"#).unwrap_err().to_string();
        assert!(mistake.starts_with("steps[0].fault.split_utf8: expected a reply with"), "{mistake}");
        assert!(with(r#"{ "http": { "status": 200, "body": "{{input}}" } }"#).is_err());
        with(r#"{ "message": { "text": "é" } }"#).unwrap();
        with(r#"{ "message": { "tool_calls": [ { "name": "f", "arguments": { "a": "{{input}}" } } ] } }"#)
            .unwrap();
        with(r#"{ "http": { "status": 200, "body": ["é"] } }"#).unwrap();
    }

    #[test]
    fn a_script_survives_the_way_through_json() {
        let script = Script::from_json(
            r#"{ "captures": { "n": "[0-9]+" }, "at_end": "restart", "steps": [
                { "reply": { "http": { "status": 529, "headers": { "a": "b" }, "body": [1] } }, "repeat": 2 },
                { "reply": { "message": { "text": "{{n}}" } }, "fault": "silence", "delay_ms": 5 },
                { "when": { "input_contains": "x" }, "reply": { "message": {} }, "fault": "crlf" },
                { "reply": { "message": { "tool_calls": [ { "name": "f" } ] } },
                  "fault": { "cut": { "after_events": 1, "by": "fin" } } } ] }"#,
        )
        .unwrap();
        let json = serde_json::to_string(&script).unwrap();
        assert_eq!(Script::from_json(&json).unwrap(), script);
    }
}
