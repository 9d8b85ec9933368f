//! One pure codec per protocol: a conversation to a request's body, an answer's bytes to a reply or a failure.
//!
//! A wire knows its protocol and nothing of HTTP clients, time or retries.

pub mod openai_chat;
