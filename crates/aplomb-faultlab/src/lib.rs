//! A model provider that fails on purpose.
//!
//! Faultlab answers chat requests from a script: it replies, calls tools, throttles, hangs, resets the
//! connection or breaks off in mid-sentence, exactly where the script says and the same way every time. It
//! renders the providers' protocols (OpenAI's Chat Completions and Responses, Anthropic's Messages, Google's
//! Gemini) by itself, from their public documentation, and so knows nothing of Aplomb's other crates: a mistake
//! in one of their codecs cannot hide behind the same mistake here.
//!
//! Two modules:
//!
//! - [`script`]: the scenario language and the engine that turns a request into a [`script::Plan`], which is
//!   plain data. No sockets, no clocks, no runtime; an in-process mock can play a plan as exactly as a server
//!   can.
//! - [`server`] (feature `server`): the raw-TCP server that plays plans over HTTP/1.1, byte for byte, and over
//!   HTTP/2; on clear text, or on TLS with certificates that are good or bad. This feature alone brings tokio,
//!   rustls, rcgen and h2.
//!
//! A script is YAML or JSON; its JSON Schema is in the repository (`schema/faultlab.schema.json`, feature
//! `schema`), and `docs/faultlab.md` is the guide. This one throttles, cuts the second answer off, calls a tool and then reports its
//! result:
//!
//! ```
//! use aplomb_faultlab::script::{Engine, Request, Script};
//!
//! let script = Script::from_json(r#"{
//!     "captures": { "sum": "([0-9][-+*/ ().0-9]*)" },
//!     "steps": [
//!         { "reply": { "http": { "status": 429, "headers": { "retry-after": "1" },
//!                                "body": { "error": { "message": "slow down" } } } } },
//!         { "reply": { "message": { "text": "Let me think" } },
//!           "fault": { "cut": { "after_events": 3, "by": "reset" } } },
//!         { "reply": { "message": { "tool_calls": [
//!             { "name": "calc", "arguments": { "expression": "{{sum}}" } } ] } } },
//!         { "reply": { "message": { "text": "The answer is {{tool_result}}." } } }
//!     ]
//! }"#)?;
//! let engine = Engine::new(script)?;
//!
//! let body = r#"{ "model": "m", "messages": [ { "role": "user", "content": "What is 6 * 7?" } ] }"#;
//! let plan = engine.plan("run-1", &Request::new("/v1/chat/completions", body));
//! assert_eq!(plan.step, Some(0)); // the 429
//! # Ok::<(), aplomb_faultlab::script::ScriptError>(())
//! ```

pub mod script;
#[cfg(feature = "server")]
pub mod server;
