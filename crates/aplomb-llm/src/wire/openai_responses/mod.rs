//! OpenAI's Responses.
//!
//! Nothing is kept at the provider (`store: false`): the whole conversation is sent each time, and the model's reasoning
//! with it, which comes and goes encrypted.
//!
//! Source: OpenAI API reference, "Create a model response" (<https://platform.openai.com/docs/api-reference/responses/create>)
//! and "Streaming events" (<https://platform.openai.com/docs/api-reference/responses-streaming>); guide "Reasoning models",
//! "Encrypted reasoning items" (<https://platform.openai.com/docs/guides/reasoning>).

mod item;
mod request;
mod response;
mod stream;

pub use request::request_body;
pub use response::decode_body;
pub use stream::Decoder;

/// The path below the API's base.
pub const PATH: &str = "/responses";

/// The name under which this wire keeps what only it can read.
const WIRE: &str = "openai_responses";
