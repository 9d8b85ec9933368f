//! The codecs against the providers' documentation, and one attempt at a model over the mock and over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod anthropic;
mod gemini;
mod model;
mod openai_chat;
mod openai_responses;
mod proxies;
mod requests;
mod splits;
mod structured;
mod transport;
mod vendors;
