//! The faults, one row each, and what each does to an attempt.

use aplomb::failure::Reason;
use aplomb_faultlab::script::json_schema;
use serde_json::{Value, json};

use super::expect::{Effect, End};
use super::{Way, Wire};

/// The good answer. It has characters that a careless reader cuts in two.
pub(crate) const GOOD: &str = "one two größer 😀 four five";

/// A fault.
pub(crate) struct Row {
    /// What happens, for people.
    pub(crate) name: &'static str,
    step: Box<dyn Fn(Wire) -> Value + Send + Sync>,
    effect: Box<dyn Fn(Wire, Way) -> Effect + Send + Sync>,
    timeouts: Value,
    /// How the server is reached, in the words of its script.
    server: Value,
    /// What becomes of a connection that carries no request, and so is seen by no request log.
    lost: Option<&'static str>,
}

impl Row {
    fn new(name: &'static str, step: impl Fn(Wire) -> Value + Send + Sync + 'static) -> Row {
        Row {
            name,
            step: Box::new(step),
            effect: Box::new(|_, _| Effect::None),
            timeouts: json!({}),
            server: json!({}),
            lost: None,
        }
    }

    /// A bare HTTP answer.
    fn http(name: &'static str, status: u16, headers: Value, body: Value) -> Row {
        Row::new(
            name,
            move |_| json!({ "reply": { "http": { "status": status, "headers": headers, "body": body } } }),
        )
    }

    /// The good answer, spoilt.
    fn fault(name: &'static str, fault: Value) -> Row {
        Row::new(name, move |_| json!({ "reply": { "message": { "text": GOOD } }, "fault": fault }))
    }

    /// The good answer, spoilt after some of its events.
    fn fault_at(name: &'static str, fault: impl Fn(Wire) -> Value + Send + Sync + 'static) -> Row {
        Row::new(name, move |wire| json!({ "reply": { "message": { "text": GOOD } }, "fault": fault(wire) }))
    }

    /// A certificate that no client is to accept.
    fn certificate(name: &'static str, tls: &str) -> Row {
        let refused = Row { lost: Some("good"), ..Row::good(name) };
        refused.reached(json!({ "tls": tls })).does(Effect::Permanent(Reason::Connection))
    }

    /// A connection over TLS that ends before it carries a request.
    fn lost(name: &'static str, connect: &'static str) -> Row {
        let lost = Row { lost: Some(connect), ..Row::good(name) };
        lost.reached(json!({ "tls": "good" })).does(Effect::Transient(Reason::Connection))
    }

    /// The good answer, spoilt as only HTTP/2 can.
    fn http2(name: &'static str, fault: impl Fn(Wire) -> Value + Send + Sync + 'static) -> Row {
        Row::fault_at(name, move |wire| json!({ "http2": fault(wire) }))
            .reached(json!({ "tls": "good", "http": "2" }))
    }

    fn good(name: &'static str) -> Row {
        Row::new(name, |_| json!({ "reply": { "message": { "text": GOOD } } }))
    }

    fn reached(self, server: Value) -> Row {
        Row { server, ..self }
    }

    /// What it does, however the answer is asked for.
    fn does(self, effect: Effect) -> Row {
        self.does_by_way(effect, effect)
    }

    fn does_by_way(self, plain: Effect, streamed: Effect) -> Row {
        self.does_by(move |_, way| if way == Way::Plain { plain } else { streamed })
    }

    fn does_by(self, effect: impl Fn(Wire, Way) -> Effect + Send + Sync + 'static) -> Row {
        Row { effect: Box::new(effect), ..self }
    }

    /// It breaks an answer off, after words where the answer was streamed.
    fn interrupts_after_words(self) -> Row {
        let reason = Reason::StreamInterrupted;
        self.does_by_way(Effect::Transient(reason), Effect::TransientAfterWords(reason))
    }

    /// Its end is a clock's, which has to be shorter than the fault for that.
    fn with_clocks(self) -> Row {
        // The least that a transport clock is set to in a test, so that a busy machine does not pull it.
        Row { timeouts: json!({ "connect_ms": 1_000, "first_byte_ms": 1_000, "idle_ms": 1_000 }), ..self }
    }

    pub(crate) fn effect(&self, wire: Wire, way: Way) -> Effect {
        (self.effect)(wire, way)
    }

    /// The script in which the fault lasts.
    pub(crate) fn lasting(&self, wire: Wire) -> Value {
        let connections: Vec<_> = self.lost.into_iter().collect();
        self.script(wire, &connections, &[])
    }

    /// The script in which it happens once, and then there is a good answer.
    pub(crate) fn once(&self, wire: Wire) -> Value {
        let connections: Vec<_> = self.lost.into_iter().chain(["good"]).collect();
        self.script(wire, &connections, &[json!({ "reply": { "message": { "text": GOOD } } })])
    }

    fn script(&self, wire: Wire, connections: &[&str], then: &[Value]) -> Value {
        let mut server = self.server.clone();
        if let (Some(server), Some(_)) = (server.as_object_mut(), self.lost) {
            server.insert("connections".to_owned(), json!(connections));
        }
        let steps: Vec<_> = std::iter::once((self.step)(wire)).chain(then.iter().cloned()).collect();
        json!({ "server": server, "steps": steps, "at_end": "repeat_last" })
    }

    /// How many of so many attempts the server sees as requests.
    pub(crate) fn requests(&self, attempts: usize, end: End) -> usize {
        match (self.lost, end) {
            (None, _) => attempts,
            (Some(_), End::Answered) => 1,
            (Some(_), End::Failed { .. }) => 0,
        }
    }

    pub(crate) fn timeouts(&self) -> &Value {
        &self.timeouts
    }

    pub(crate) fn calls_tools(&self) -> bool {
        Wire::ALL
            .iter()
            .any(|wire| Way::ALL.iter().any(|way| self.effect(*wire, *way) == Effect::CallRefused))
    }
}

/// Events of which none has words: a role; `response.created` and what the answer's items begin with; `message_start` and
/// `ping`. Gemini's first event has a word.
fn before_words(wire: Wire) -> usize {
    match wire {
        Wire::OpenAiChat => 1,
        Wire::OpenAiResponses => 4,
        Wire::Anthropic => 2,
        Wire::Gemini => 0,
    }
}

/// Events of which the last two have words.
fn after_words(wire: Wire) -> usize {
    match wire {
        Wire::OpenAiChat => 3,
        Wire::OpenAiResponses => 6,
        // The block's start comes first.
        Wire::Anthropic => 5,
        Wire::Gemini => 2,
    }
}

/// A fault of that kind, after words.
fn after(kind: &'static str, rest: Value) -> impl Fn(Wire) -> Value {
    move |wire| {
        let mut fields = rest.as_object().cloned().unwrap_or_default();
        fields.insert("after_events".to_owned(), json!(after_words(wire)));
        json!({ kind: fields })
    }
}

/// What a provider says went wrong.
#[derive(Clone, Copy)]
enum Wrong {
    Overload,
    Server,
    Request,
}

/// An error in the words of the wire's own provider.
fn error(wire: Wire, wrong: Wrong) -> Value {
    const MESSAGE: &str = "as the script has it";
    match wire {
        Wire::OpenAiChat => {
            let kind = match wrong {
                Wrong::Overload => "overloaded_error",
                Wrong::Server => "server_error",
                Wrong::Request => "invalid_request_error",
            };
            json!({ "error": { "type": kind, "message": MESSAGE } })
        }
        Wire::OpenAiResponses => {
            let code = match wrong {
                Wrong::Overload => "server_is_overloaded",
                Wrong::Server => "server_error",
                Wrong::Request => "invalid_request_error",
            };
            json!({ "type": "error", "code": code, "message": MESSAGE, "param": null })
        }
        Wire::Anthropic => {
            let kind = match wrong {
                Wrong::Overload => "overloaded_error",
                Wrong::Server => "api_error",
                Wrong::Request => "invalid_request_error",
            };
            json!({ "type": "error", "error": { "type": kind, "message": MESSAGE } })
        }
        Wire::Gemini => {
            let (code, status) = match wrong {
                Wrong::Overload => (503, "UNAVAILABLE"),
                Wrong::Server => (500, "INTERNAL"),
                Wrong::Request => (400, "INVALID_ARGUMENT"),
            };
            json!({ "error": { "code": code, "status": status, "message": MESSAGE } })
        }
    }
}

/// Fails if there is a fault in the fault lab's language that no row has.
pub(crate) fn check_complete(rows: &[Row]) -> Result<(), String> {
    let schema = json_schema();
    let scripts: Vec<Value> = rows.iter().map(|row| row.lasting(Wire::OpenAiChat)).collect();
    let played: Vec<&Value> = scripts.iter().filter_map(|script| script.pointer("/steps/0/fault")).collect();
    for (place, of) in [("/$defs/Fault/oneOf", None), ("/$defs/Http2Fault/oneOf", Some("http2"))] {
        let faults = schema.pointer(place).and_then(Value::as_array).ok_or("the schema has no faults")?;
        for fault in faults {
            let by_itself = fault.get("const").and_then(Value::as_str);
            let with_fields =
                fault.get("properties").and_then(Value::as_object).and_then(|one| one.keys().next());
            let name = by_itself.or(with_fields.map(String::as_str)).ok_or("a fault without a name")?;
            let mut found = played.iter().filter_map(|fault| match of {
                Some(of) => fault.get(of),
                None => Some(*fault),
            });
            if !found.any(|fault| fault.as_str() == Some(name) || fault.get(name).is_some()) {
                return Err(format!("no row of the matrix plays the fault {name}"));
            }
        }
    }
    Ok(())
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = statuses();
    rows.extend(connections());
    rows.extend(http2());
    rows.extend(interruptions());
    rows.extend(errors_inside());
    rows.extend(clocks());
    rows.extend(harmless());
    rows.extend(answers());
    rows
}

fn statuses() -> Vec<Row> {
    use Reason::*;
    let bare = |name, status| Row::http(name, status, json!({}), Value::Null);
    let html = json!("<html><head><title>502 Bad Gateway</title></head></html>");
    let text_html = json!({ "content-type": "text/html" });
    let quota =
        json!({ "error": { "message": "You exceeded your current quota.", "code": "insufficient_quota" } });
    let after = |value: &str| json!({ "retry-after": value });
    let waits = |name, wait: Value| {
        let reply = json!({ "reply": { "http": { "status": 429, "retry_after": wait } } });
        Row::new(name, move |_| reply.clone()).does(Effect::Transient(RateLimit))
    };
    vec![
        bare("400", 400).does(Effect::Permanent(InvalidRequest)),
        bare("401", 401).does(Effect::Permanent(Auth)),
        bare("402", 402).does(Effect::Permanent(QuotaExhausted)),
        bare("403", 403).does(Effect::Permanent(Permission)),
        bare("404", 404).does(Effect::Permanent(InvalidRequest)),
        bare("408", 408).does(Effect::Transient(Timeout)),
        bare("409", 409).does(Effect::Transient(ServerError)),
        bare("413", 413).does(Effect::Permanent(PayloadTooLarge)),
        bare("418, which no provider gives", 418).does(Effect::Unknown),
        bare("422", 422).does(Effect::Permanent(InvalidRequest)),
        bare("429", 429).does(Effect::Transient(RateLimit)),
        Row::http("429 with `Retry-After: 1`", 429, after("1"), Value::Null)
            .does(Effect::Transient(RateLimit)),
        waits("429 with a `Retry-After` date in a second", json!({ "date": { "in_seconds": 1 } })),
        waits("429 with `Retry-After-Ms: 300`", json!({ "milliseconds": 300 })),
        waits("429 with a `Retry-After` that is past", json!({ "date": { "in_seconds": -60 } })),
        waits("429 with a `Retry-After` that is nonsense", json!({ "text": "soon" })),
        Row::http("429 with `Retry-After: 120`, longer than is slept", 429, after("120"), Value::Null)
            .does(Effect::WaitTooLong(RateLimit)),
        Row::http("429 that is a spent quota", 429, json!({}), quota).does(Effect::Permanent(QuotaExhausted)),
        bare("500", 500).does(Effect::Transient(ServerError)),
        Row::http("502 with a gateway's page", 502, text_html, html).does(Effect::Transient(ServerError)),
        bare("503", 503).does(Effect::Transient(ServerError)),
        bare("504", 504).does(Effect::Transient(Timeout)),
        bare("529", 529).does(Effect::Transient(Overloaded)),
        Row::http("a redirect", 302, json!({ "location": "/v1/elsewhere" }), Value::Null)
            .does(Effect::Permanent(InvalidRequest)),
    ]
}

fn connections() -> Vec<Row> {
    let connection = Effect::Transient(Reason::Connection);
    vec![
        Row::fault("reset before the headers", json!("reset_before_headers")).does(connection),
        Row::fault("closed before the headers", json!("close_before_headers")).does(connection),
        Row::good("over TLS").reached(json!({ "tls": "good" })),
        Row::certificate("an expired certificate", "expired"),
        Row::certificate("a certificate whose time has not come", "not_yet_valid"),
        Row::certificate("a certificate of another host", "wrong_host"),
        Row::certificate("a certificate of an unknown authority", "untrusted"),
        Row::lost("a TLS handshake cut by FIN", "cut_handshake"),
        Row::lost("a TLS handshake cut by RST", "reset_handshake"),
        Row::lost("closed before the TLS handshake", "close"),
        Row::lost("reset before the TLS handshake", "reset"),
        Row::lost("a TLS handshake that is not answered", "silent_handshake")
            .does(Effect::Transient(Reason::Timeout))
            .with_clocks(),
    ]
}

fn http2() -> Vec<Row> {
    let connection = Effect::Transient(Reason::Connection);
    let reset =
        |wire| json!({ "reset_stream": { "code": "internal_error", "after_events": after_words(wire) } });
    vec![
        Row::good("over HTTP/2").reached(json!({ "tls": "good", "http": "2" })),
        Row::http2("GOAWAY that leaves the request out", |_| json!("go_away_before")).does(connection),
        Row::http2("GOAWAY after the request, and then its answer", |_| json!("go_away_graceful")),
        Row::http2(
            "GOAWAY that ends the connection at once",
            |_| json!({ "go_away_abrupt": { "code": "internal_error" } }),
        )
        .does(connection),
        Row::http2("REFUSED_STREAM", |_| json!("refused_stream")).does(connection),
        Row::http2(
            "RST_STREAM before the headers",
            |_| json!({ "reset_stream": { "code": "internal_error" } }),
        )
        .does(connection),
        Row::http2("RST_STREAM after words", reset).interrupts_after_words(),
    ]
}

fn interruptions() -> Vec<Row> {
    let interrupted = Effect::Transient(Reason::StreamInterrupted);
    let malformed = Effect::Permanent(Reason::MalformedResponse);
    let cut = |name, events: fn(Wire) -> usize, by: &'static str| {
        Row::fault_at(name, move |wire| json!({ "cut": { "after_events": events(wire), "by": by } }))
    };
    let broken = |name, events: fn(Wire) -> usize| {
        Row::fault_at(name, move |wire| json!({ "malformed_event": { "after_events": events(wire) } }))
    };
    let at = |name, kind: &'static str, rest: Value| Row::fault_at(name, after(kind, rest));
    let wrong_size = |wire| json!({ "wrong_chunk_size": { "after_events": after_words(wire) } });
    let ends = |done: bool| json!({ "end_without_terminal": { "done": done } });
    vec![
        cut("cut before the first word, by FIN", before_words, "fin").does(interrupted),
        cut("cut before the first word, by RST", before_words, "reset").does(interrupted),
        cut("cut after words, by FIN", after_words, "fin").interrupts_after_words(),
        cut("cut after words, by RST", after_words, "reset").interrupts_after_words(),
        Row::fault("ends without its terminal event", ends(false)).interrupts_after_words(),
        Row::fault("ends without its terminal event, with `[DONE]`", ends(true)).interrupts_after_words(),
        broken("a broken event before the first word", before_words).does_by_way(malformed, interrupted),
        broken("a broken event after words", after_words)
            .does_by_way(malformed, Effect::TransientAfterWords(Reason::StreamInterrupted)),
        at("an event's JSON split over two events", "split_event", json!({}))
            .does_by_way(Effect::None, Effect::TransientAfterWords(Reason::StreamInterrupted)),
        Row::fault_at("a chunk of the wrong size", wrong_size).interrupts_after_words(),
        // What Anthropic always says last is not there. OpenAI's last words are habits, and some vendors have none.
        Row::fault("ends after the reason, without the protocol's last word", json!("end_after_reason"))
            .does_by(|wire, way| match (wire, way) {
                (Wire::Anthropic, Way::Streamed) => Effect::TransientAfterWords(Reason::StreamInterrupted),
                _ => Effect::None,
            }),
        // All of a stream is there; what was announced beyond its end is nobody's loss.
        Row::fault("a body shorter than announced", json!("short_body"))
            .does_by_way(interrupted, Effect::None),
    ]
}

fn errors_inside() -> Vec<Row> {
    let inside = |name, events: fn(Wire) -> usize, wrong: Wrong| {
        Row::fault_at(name, move |wire| {
            let body = error(wire, wrong);
            json!({ "error_event": { "after_events": events(wire), "body": body } })
        })
    };
    let wordless = |wire| json!({ "error_event": { "after_events": before_words(wire), "body": "" } });
    let after_words_too =
        |row: Row, reason| row.does_by_way(Effect::Transient(reason), Effect::TransientAfterWords(reason));
    let refused = Effect::Permanent(Reason::InvalidRequest);
    vec![
        inside("an overload inside a 200, before the first word", before_words, Wrong::Overload)
            .does(Effect::Transient(Reason::Overloaded)),
        after_words_too(
            inside("an overload inside a 200, after words", after_words, Wrong::Overload),
            Reason::Overloaded,
        ),
        inside("a server's error inside a 200, before the first word", before_words, Wrong::Server)
            .does(Effect::Transient(Reason::ServerError)),
        after_words_too(
            inside("a server's error inside a 200, after words", after_words, Wrong::Server),
            Reason::ServerError,
        ),
        inside("a refused request inside a 200, before the first word", before_words, Wrong::Request)
            .does(refused),
        inside("a refused request inside a 200, after words", after_words, Wrong::Request).does(refused),
        Row::fault_at("an error without a word, before the first word", wordless).does_by_way(
            Effect::Transient(Reason::MalformedResponse),
            Effect::Transient(Reason::StreamInterrupted),
        ),
    ]
}

fn clocks() -> Vec<Row> {
    let timeout = Effect::Transient(Reason::Timeout);
    let after_words_too = |row: Row| row.does_by_way(timeout, Effect::TransientAfterWords(Reason::Timeout));
    let stall = |name, events: fn(Wire) -> usize| {
        Row::fault_at(name, move |wire| json!({ "stall": { "after_events": events(wire) } }))
    };
    let pings = |name, events: fn(Wire) -> usize, with: &'static str| {
        Row::fault_at(
            name,
            move |wire| json!({ "pings": { "after_events": events(wire), "every_ms": 50, "with": with } }),
        )
    };
    let rows = vec![
        Row::fault("silence", json!("silence")).does(timeout),
        Row::fault("headers that come too late", json!({ "slow_headers": { "delay_ms": 60_000 } }))
            .does(timeout),
        stall("stalls before the first word", before_words).does(timeout),
        after_words_too(stall("stalls after words", after_words)),
        pings("nothing but comments before the first word", before_words, "comments").does(timeout),
        after_words_too(pings("nothing but comments after words", after_words, "comments")),
        pings("nothing but pings before the first word", before_words, "events").does(timeout),
        after_words_too(pings("nothing but pings after words", after_words, "events")),
        // A document is whole when its body is; a stream when it says so.
        Row::fault("whole, and then pings without end", json!({ "pings_after_end": { "every_ms": 50 } }))
            .does_by_way(timeout, Effect::None),
    ];
    rows.into_iter().map(Row::with_clocks).collect()
}

fn harmless() -> Vec<Row> {
    vec![
        Row::fault("lines that end with CRLF", json!("crlf")),
        Row::fault("lines that end with CR", json!("lone_cr")),
        Row::fault("a character cut in two", json!("split_utf8")),
        Row::fault("headers in pieces", json!("split_headers")),
        Row::fault("slow headers", json!({ "slow_headers": { "delay_ms": 20 } })),
        Row::fault("a slow drip of two bytes at a time", json!({ "drip": { "bytes": 2, "every_ms": 1 } })),
        // A document is one value, or it is none.
        Row::fault_at("two events' JSON on one line", after("glued_events", json!({})))
            .does_by_way(Effect::Permanent(Reason::MalformedResponse), Effect::None),
        Row::fault_at("a mebibyte of events that say nothing", |wire| {
            // Gemini's events all say something but the last.
            let events = before_words(wire).checked_sub(1).unwrap_or(99);
            json!({ "flood": { "after_events": events, "bytes": 1 << 20 } })
        }),
        Row::fault_at("an event of 7 MiB", after("huge_event", json!({ "bytes": 7 << 20 }))),
    ]
}

fn answers() -> Vec<Row> {
    let malformed = Effect::Permanent(Reason::MalformedResponse);
    let page = json!("<html><h1>Sign in</h1></html>");
    let text_html = json!({ "content-type": "text/html" });
    let cut = |name, fault: Value| {
        Row::new(name, move |_| {
            let call = json!({ "name": "calc", "arguments": { "expression": "6 * 7" } });
            json!({ "reply": { "message": { "tool_calls": [call] } }, "fault": { "cut_arguments": fault } })
        })
    };
    let filtered = |wire| if wire == Wire::Anthropic { "refusal" } else { "content_filter" };
    vec![
        Row::fault_at("an event larger than 8 MiB", after("huge_event", json!({ "bytes": 9 << 20 })))
            .does_by_way(Effect::None, malformed),
        Row::fault("an answer by nobody", json!("empty_answer"))
            .does(Effect::Transient(Reason::EmptyResponse)),
        Row::http("200 with a page", 200, text_html, page).does(malformed),
        Row::http("200 with `{}`", 200, json!({}), json!({})).does(malformed),
        Row::http("200 with nothing", 200, json!({}), Value::Null)
            .does(Effect::Transient(Reason::MalformedResponse)),
        Row::new("an answer without a word", |_| json!({ "reply": { "message": {} } }))
            .does(Effect::Transient(Reason::EmptyResponse)),
        Row::new(
            "an answer that a filter stopped",
            move |wire| json!({ "reply": { "message": { "text": GOOD, "finish_reason": filtered(wire) } } }),
        )
        .does(Effect::Permanent(Reason::ContentFilter)),
        cut("a tool's arguments cut off at the token limit", json!({})).does(Effect::CallRefused),
        cut("the same, called a regular end", json!({ "finish_reason": "tool_calls" }))
            .does(Effect::CallRefused),
    ]
}
