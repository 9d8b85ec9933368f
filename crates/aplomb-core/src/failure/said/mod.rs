//! What a body says: the provider's words, out of whatever gateways wrapped around them. Judges nothing.

pub(super) mod json;

use serde_json::{Map, Value};

use super::wait::Stated;
use super::{BODY_LIMIT, Failure, TransportKind};

/// How many wraps are opened. Gateways were seen to use two; their own envelope and an SDK's sentence come on top.
const MAX_DEPTH: usize = 6;

/// How many error objects are kept.
const MAX_LAYERS: usize = 12;

/// How much of one message is read for its wording, in bytes. The beginning says what is wrong.
const MESSAGE_LIMIT: usize = 2 * 1024;

/// One error object, or one sentence, of a body.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Layer {
    /// `code`, and what others call it. Numbers are written out.
    pub(super) code: Option<String>,
    /// `type`, and what others call it.
    pub(super) kind: Option<String>,
    /// gRPC's name of a status.
    pub(super) status: Option<String>,
    /// The HTTP status that the object states.
    pub(super) http: Option<u16>,
    /// The parameter that it complains about.
    pub(super) param: Option<String>,
    /// The sentence for people.
    pub(super) message: Option<String>,
}

/// Everything that a failure's texts say.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The outermost first.
    pub(super) layers: Vec<Layer>,
    /// Further words of the provider: the reasons and the quotas in Google's details, a guardrail's, …
    pub(super) words: Vec<String>,
    /// Every message in lower case, each after a line break, without the quotations: those hold what somebody else
    /// said.
    pub(super) prose: String,
    /// Waits in fields, the most precise kind first.
    pub(super) waits: Vec<(u8, Stated)>,
    /// Why an answer ended, where the body is one.
    pub(super) finish: Option<String>,
    /// The body is a page for people.
    pub(super) is_page: bool,
}

impl Said {
    /// Reads a failure's body, and what the HTTP client said.
    pub(super) fn of(failure: &Failure) -> Said {
        let mut said = Said::default();
        let body = head(&failure.body, BODY_LIMIT);
        said.is_page = is_page(body);
        if !said.is_page {
            said.text(body, 0);
        }
        // A fault that is known by its kind needs no words.
        if let Some(fault) = failure.transport.as_ref().filter(|fault| fault.kind == TransportKind::Other) {
            said.text(head(&fault.text, BODY_LIMIT), 0);
        }
        // What the codec read, where the body that was kept does not show it any more.
        let error = &failure.provider_error;
        let shown = |field: fn(&Layer) -> &Option<String>, value: &Option<String>| {
            value.is_none() || said.layers.iter().any(|layer| field(layer) == value)
        };
        if !(shown(|layer| &layer.code, &error.code)
            && shown(|layer| &layer.kind, &error.kind)
            && shown(|layer| &layer.message, &error.message))
        {
            said.push(Layer {
                code: error.code.clone(),
                kind: error.kind.clone(),
                param: error.param.clone(),
                message: error.message.clone(),
                http: error.code.as_deref().and_then(http_status),
                ..Layer::default()
            });
        }
        for layer in &said.layers {
            if let Some(message) = &layer.message {
                said.prose.push('\n');
                let room = BODY_LIMIT.saturating_sub(said.prose.len());
                push_unquoted(head(message, MESSAGE_LIMIT.min(room)), &mut said.prose);
            }
        }
        said.prose.make_ascii_lowercase();
        said
    }

    /// Reads a parsed body.
    pub(super) fn of_json(body: &Value) -> Said {
        let mut said = Said::default();
        said.value(body, 0);
        said
    }

    /// The words that name the error, the innermost layer's first: it knows what happened.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let of_layers = self.layers.iter().rev().flat_map(|layer| {
            [&layer.code, &layer.kind, &layer.status].into_iter().filter_map(|name| name.as_deref())
        });
        self.words.iter().map(String::as_str).chain(of_layers)
    }

    /// True if the error goes by one of these names, whatever their case.
    pub(super) fn is_named(&self, names: &[&str]) -> bool {
        self.names().any(|name| names.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    fn push(&mut self, layer: Layer) {
        if layer != Layer::default() && self.layers.len() < MAX_LAYERS {
            self.layers.push(layer);
        }
    }

    /// A text: JSON, a sentence, or a sentence with JSON in it.
    fn text(&mut self, text: &str, depth: usize) {
        if text.trim().is_empty() {
            return;
        }
        if let Some(value) = json::read(text) {
            return self.value(&value, depth);
        }
        self.push(Layer { message: Some(text.trim().to_owned()), ..Layer::default() });
        self.quoted_json(text, depth);
    }

    /// The JSON, or the Python literal, that a sentence quotes: `Error code: 429 - {'error': …}`.
    fn quoted_json(&mut self, text: &str, depth: usize) {
        let begins = text.match_indices(['{', '[']).find(|(at, _)| {
            let rest = text.get(at + 1..).unwrap_or_default().trim_start();
            rest.starts_with(['"', '\'', '{'])
        });
        if let Some(value) = begins.and_then(|(at, _)| json::read(text.get(at..)?)) {
            self.value(&value, depth + 1);
        }
    }

    fn value(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Array(items) => items.iter().take(4).for_each(|item| self.value(item, depth)),
            Value::String(text) => self.text(text, depth),
            Value::Object(fields) => self.object(fields, depth),
            _ => {}
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: usize) {
        let layer = Layer::of(fields);
        let message = layer.message.clone();
        self.push(layer);
        self.waits.extend(super::wait::in_fields(fields));
        self.finish = self.finish.take().or_else(|| finish(fields));
        self.google_details(fields);
        if let Some(message) = message {
            if message.trim_start().starts_with(['{', '[']) {
                self.text(&message, depth + 1);
            } else {
                self.quoted_json(&message, depth);
            }
        }
        // Where providers and gateways keep the error, or the one below it.
        for key in [
            "error",
            "errors",
            "detail",
            "fault",
            "base_resp",
            "response",
            "Response",
            "Output",
            "body",
            "innererror",
            "metadata",
            "data",
        ] {
            match (key, fields.get(key)) {
                // These two hold much else; only what is an error inside them counts.
                ("metadata", Some(Value::Object(inner))) => {
                    self.waits.extend(
                        inner
                            .get("headers")
                            .and_then(Value::as_object)
                            .map(super::wait::in_fields)
                            .into_iter()
                            .flatten(),
                    );
                    let kind = inner.get("error_type").and_then(Value::as_str);
                    self.words.extend(kind.map(str::to_owned));
                    if let Some(raw) = inner.get("raw") {
                        self.value(raw, depth + 1);
                    }
                }
                ("response" | "Response" | "body" | "data", Some(Value::Object(inner))) => {
                    for key in ["error", "errors", "Error"] {
                        if let Some(error) = inner.get(key) {
                            self.value(error, depth + 1);
                        }
                    }
                    self.finish = self.finish.take().or_else(|| finish(inner));
                }
                // MiniMax's numbers mean other things than those of others.
                ("base_resp", Some(Value::Object(inner))) => {
                    let mut layer = Layer::of(inner);
                    layer.code = layer.code.map(|code| format!("base_resp.{code}"));
                    self.push(layer);
                }
                // A sentence of its own layer already; an object or a list is not.
                ("detail", Some(Value::String(_))) => {}
                ("response" | "Response" | "body" | "data" | "metadata", _) => {}
                (_, Some(inner)) => self.value(inner, depth + 1),
                (_, None) => {}
            }
        }
        if let Some(inner @ Value::Object(_)) = fields.get("message") {
            self.value(inner, depth + 1);
        }
    }

    /// Source: google/rpc/error_details.proto (ErrorInfo, QuotaFailure, BadRequest, RetryInfo).
    fn google_details(&mut self, fields: &Map<String, Value>) {
        let details = fields.get("details").and_then(Value::as_array);
        for detail in details.into_iter().flatten().filter_map(Value::as_object).take(8) {
            self.words.extend(detail.get("reason").and_then(Value::as_str).map(str::to_owned));
            self.waits.extend(super::wait::in_fields(detail));
            if let Some(metadata) = detail.get("metadata").and_then(Value::as_object) {
                self.waits.extend(super::wait::in_fields(metadata));
            }
            for (list, key) in [("violations", "quotaId"), ("fieldViolations", "field")] {
                let items = detail.get(list).and_then(Value::as_array);
                let named = items.into_iter().flatten().filter_map(|item| item.get(key)?.as_str());
                self.words.extend(named.take(8).map(str::to_owned));
            }
        }
        // Azure: what the filter found.
        if fields.get("content_filter_result").is_some() || fields.get("content_filter_results").is_some() {
            self.words.push("content_filter_result".to_owned());
        }
    }
}

impl Layer {
    fn of(fields: &Map<String, Value>) -> Layer {
        let text = |keys: &[&str]| {
            keys.iter().find_map(|key| match fields.get(*key)? {
                Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
                _ => None,
            })
        };
        let text_or_number = |keys: &[&str]| {
            keys.iter().find_map(|key| match fields.get(*key)? {
                Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            })
        };
        let code = text_or_number(&[
            "code",
            "Code",
            "errorCode",
            "errorcode",
            "error_code",
            "err_code",
            "status_code",
        ])
        .filter(|code| code != "0");
        let stated = ["statusCode", "http_code", "status", "raw_status_code", "httpStatus", "http_status"];
        let http = code
            .as_deref()
            .and_then(http_status)
            .or_else(|| stated.iter().find_map(|key| http_status(&text_or_number(&[key])?)));
        // These say that the object is an error, or an answer, and not which.
        let kind = text(&["type", "__type", "error_type", "errorType", "reason"])
            .filter(|kind| !matches!(kind.as_str(), "error" | "message" | "response.failed" | "None"));
        Layer {
            code,
            // AWS: `com.amazon.coral.service#ThrottlingException`.
            kind: kind.map(|kind| match kind.rsplit_once('#') {
                Some((_, name)) => name.to_owned(),
                None => kind,
            }),
            status: text(&["status"]).filter(|status| http_status(status).is_none()),
            http,
            param: text(&["param"]),
            message: text(&[
                "message",
                "Message",
                "msg",
                "error_message",
                "errorMessage",
                "error_msg",
                "faultstring",
                "status_msg",
                "error_description",
                "detail",
                "title",
            ]),
        }
    }
}

/// Why an answer ended, in the words of its protocol.
fn finish(fields: &Map<String, Value>) -> Option<String> {
    let first = |list: &str, key: &str| fields.get(list)?.as_array()?.first()?.get(key)?.as_str();
    let word = first("choices", "finish_reason")
        .or_else(|| first("candidates", "finishReason"))
        .or_else(|| {
            ["stop_reason", "stopReason", "done_reason"].iter().find_map(|key| fields.get(*key)?.as_str())
        })
        .or_else(|| fields.get("incomplete_details")?.get("reason")?.as_str())
        .or_else(|| fields.get("promptFeedback")?.get("blockReason")?.as_str());
    word.map(str::to_owned)
}

/// A number that can be the HTTP status of a failure.
fn http_status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (300..600).contains(status))
}

/// A page for people instead of an API's answer.
pub(super) fn is_page(body: &str) -> bool {
    let start = head(body.trim_start_matches('\u{feff}').trim_start(), 15).to_ascii_lowercase();
    start.starts_with('<') && !start.starts_with("<4") && !start.starts_with("<5")
}

/// The beginning of a text, cut between characters.
pub(super) fn head(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or(text)
}

/// A message without its quotations, unless they are one word: `got 'HTTP 429: overloaded' instead` says nothing about
/// the provider's load.
fn push_unquoted(message: &str, out: &mut String) {
    let mut rest = message;
    let mut before = ' ';
    while let Some(at) = rest.find(['\'', '"']) {
        let (plain, quoted) = rest.split_at(at);
        out.push_str(plain);
        before = plain.chars().next_back().unwrap_or(before);
        let mut letters = quoted.chars();
        let quote = letters.next().unwrap_or_default();
        let inside = letters.as_str();
        // An apostrophe stands after a letter.
        let end = if before.is_alphanumeric() { None } else { closing(inside, quote) };
        out.push(quote);
        before = quote;
        rest = match end {
            Some(end) => {
                let (inner, after) = inside.split_at(end);
                if !inner.contains(char::is_whitespace) {
                    out.push_str(inner);
                }
                out.push(quote);
                after.get(quote.len_utf8()..).unwrap_or_default()
            }
            None => inside,
        };
    }
    out.push_str(rest);
}

/// Where a quotation ends: at a quote that no letter follows. A long way off, it is another one's beginning.
fn closing(inside: &str, quote: char) -> Option<usize> {
    let reach = head(inside, 512);
    // A few tries, so that a text full of quotes costs no more than its length.
    reach.match_indices(quote).map(|(at, _)| at).take(8).find(|at| {
        let next = reach.get(at + 1..).and_then(|after| after.chars().next());
        next.is_none_or(|next| !next.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(body: &Value) -> Vec<String> {
        Said::of_json(body).names().map(str::to_owned).collect()
    }

    #[test]
    fn every_envelope_gives_its_error() {
        for body in [
            json!({"error": {"code": "slow_down"}}),
            json!({"error": {"error": {"code": "slow_down"}}}),
            json!([{"error": {"code": "slow_down"}}]),
            json!({"errors": [{"code": "slow_down"}]}),
            json!({"code": "slow_down", "error": "a sentence"}),
            json!({"type": "response.failed", "response": {"error": {"code": "slow_down"}}}),
            json!({"Output": {"__type": "com.amazon.coral.service#slow_down"}}),
            json!({"error": {"message": "{\"error\":{\"code\":\"slow_down\"}}"}}),
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": "{\"type\":\"slow_down\"}"}}}),
            json!({"detail": "500: Error code: 404 - {'error': {'code': 'slow_down'}}"}),
        ] {
            assert!(names(&body).contains(&"slow_down".to_owned()), "{body}");
        }
    }

    #[test]
    fn what_is_quoted_is_not_what_is_said() {
        let mut prose = String::new();
        push_unquoted(
            "the model's role, got 'HTTP 429: overloaded' instead of \"user\" or 'tool'",
            &mut prose,
        );
        assert_eq!(prose, "the model's role, got '' instead of \"user\" or 'tool'");
    }

    #[test]
    fn a_page_is_known_by_its_beginning() {
        assert!(is_page("\n <!DOCTYPE html>") && is_page("<html>") && is_page("<?xml version"));
        assert!(!is_page("{\"a\": 1}") && !is_page("") && !is_page("<400> InternalError.Algo"));
    }
}
