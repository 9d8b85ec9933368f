//! Renders an answer as Responses sends it, streamed or whole.
//!
//! Sources: the API reference's page "Streaming events"
//! (<https://developers.openai.com/api/reference/resources/responses/streaming-events>) for the events and their
//! fields, the guides "Streaming API responses" and "Function calling"
//! (<https://developers.openai.com/api/docs/guides/streaming-responses>, `…/function-calling`) for their order, and
//! the response object of OpenAI's SDKs, which are generated from its API description.

use bytes::Bytes;
use serde::Serialize;

use super::ENCRYPTED;
use crate::script::chat::Chat;
use crate::script::fault::{Body, ErrorType, Whole};
use crate::script::render::{CREATED, events, json, to_json, typed_event};
use crate::script::said::{Call, Said};
use crate::script::{self, PingKind};

/// What the model said as the answer to this request, which is the engine's `number`-th.
pub(in crate::script) fn render(said: &Said, chat: &Chat, number: u64) -> Whole {
    let answer = Answer { number, model: &chat.model, said, ending: Ending::of(&said.finish_reason) };
    if chat.stream {
        let (content, terminal) = answer.events();
        events(Body::Stream {
            content,
            terminal: vec![terminal],
            // The event that says why the model ended is the last one; there is no `[DONE]`.
            done: None,
            ping: PingKind::Comments,
            errors: ErrorType::OfData,
            gap: said.gap,
        })
    } else {
        let document = |ending| to_json(&answer.response(answer.output(), ending, Some(Usage::of(said))));
        json(200, document(Some(answer.ending)), document(None))
    }
}

// What the status of an answer and of its items can be.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

/// How an answer ends. The script's finish reasons are Chat Completions'; an answer that is not complete says
/// why (`incomplete_details.reason`, which is `max_output_tokens` or `content_filter`). Any other reason is sent
/// as it is.
#[derive(Clone, Copy)]
enum Ending<'a> {
    Completed,
    Incomplete(&'a str),
}

impl<'a> Ending<'a> {
    fn of(finish_reason: &'a str) -> Self {
        match finish_reason {
            "stop" | "tool_calls" => Self::Completed,
            "length" => Self::Incomplete("max_output_tokens"),
            other => Self::Incomplete(other),
        }
    }

    fn status(self) -> &'static str {
        match self {
            Self::Completed => COMPLETED,
            Self::Incomplete(_) => INCOMPLETE,
        }
    }

    fn event(self) -> &'static str {
        match self {
            Self::Completed => "response.completed",
            Self::Incomplete(_) => "response.incomplete",
        }
    }
}

/// What the model said and what surrounds it on this wire.
struct Answer<'a> {
    number: u64,
    model: &'a str,
    said: &'a Said,
    ending: Ending<'a>,
}

/// What becomes an item.
#[derive(Clone, Copy)]
enum Saying<'a> {
    /// A thought, with its summary if anybody may read it.
    Thought(Option<&'a str>),
    Text(&'a str),
    Call(&'a Call),
}

impl<'a> Answer<'a> {
    /// An item each for the thinking, for what nobody may read, for the text and for every call.
    fn sayings(&self) -> Vec<Saying<'a>> {
        let said = self.said;
        let thinking = said.thinking.as_deref().map(|thinking| Saying::Thought(Some(thinking)));
        let redacted = said.redacted_thinking.then_some(Saying::Thought(None));
        let text = said.text.as_deref().map(Saying::Text);
        let calls = said.calls.iter().map(Saying::Call);
        thinking.into_iter().chain(redacted).chain(text).chain(calls).collect()
    }

    /// The content events and the terminal one.
    fn events(&self) -> (Vec<Bytes>, Bytes) {
        let mut events = Events::default();
        for kind in ["response.created", "response.in_progress"] {
            events.push(kind, ResponseEvent { response: self.response(Vec::new(), None, None) });
        }
        for (output_index, saying) in self.sayings().into_iter().enumerate() {
            let item = Item::begun(self.item_id(output_index, saying), saying);
            events.push("response.output_item.added", ItemEvent { output_index, item });
            self.push_saying(&mut events, output_index, saying);
            let item = self.ended(output_index, saying);
            events.push("response.output_item.done", ItemEvent { output_index, item });
        }
        let response = self.response(self.output(), Some(self.ending), Some(Usage::of(self.said)));
        let terminal = events.next(self.ending.event(), ResponseEvent { response });
        (events.0, terminal)
    }

    /// What comes between the begin and the end of an item.
    fn push_saying(&self, events: &mut Events, output_index: usize, saying: Saying) {
        let item_id = self.item_id(output_index, saying);
        let item = Place { item_id: &item_id, output_index };
        match saying {
            Saying::Thought(None) => {}
            Saying::Thought(Some(summary)) => {
                let deltas = self.said.thinking_pieces();
                let at = |content| SummaryEvent { item, summary_index: 0, content };
                let part = |text| Content::Part(Summary::of(text));
                events.push("response.reasoning_summary_part.added", at(part("")));
                for delta in &deltas {
                    events.push("response.reasoning_summary_text.delta", at(Content::Delta(delta)));
                }
                events.push("response.reasoning_summary_text.done", at(Content::Text(summary)));
                events.push("response.reasoning_summary_part.done", at(part(summary)));
            }
            Saying::Text(text) => {
                let deltas = self.said.text_pieces();
                let at = |content| ContentEvent { item, content_index: 0, content };
                let part = |text| Content::Part(OutputText::of(text));
                let logged = |content| LoggedEvent { event: at(content), logprobs: [] };
                events.push("response.content_part.added", at(part("")));
                for delta in &deltas {
                    events.push("response.output_text.delta", logged(Content::Delta(delta)));
                }
                events.push("response.output_text.done", logged(Content::Text(text)));
                events.push("response.content_part.done", at(part(text)));
            }
            Saying::Call(call) => {
                for delta in self.said.argument_pieces(call) {
                    events.push("response.function_call_arguments.delta", DeltaEvent { item, delta: &delta });
                }
                let done = ArgumentsEvent { item, arguments: &call.arguments };
                events.push("response.function_call_arguments.done", done);
            }
        }
    }

    fn output(&self) -> Vec<Item<'a>> {
        self.sayings().into_iter().enumerate().map(|(index, saying)| self.ended(index, saying)).collect()
    }

    /// The whole item. Where the answer is not complete, its last item is not, either.
    fn ended(&self, output_index: usize, saying: Saying<'a>) -> Item<'a> {
        let is_last = output_index + 1 == self.sayings().len();
        let status = if is_last { self.ending.status() } else { COMPLETED };
        Item::ended(self.item_id(output_index, saying), saying, status)
    }

    fn item_id(&self, output_index: usize, saying: Saying) -> String {
        let prefix = match saying {
            Saying::Thought(_) => "rs",
            Saying::Text(_) => "msg",
            Saying::Call(_) => "fc",
        };
        format!("{prefix}_faultlab_{}_{output_index}", self.number)
    }

    /// The response; without an ending, one that is under way.
    fn response<'b>(
        &self,
        output: Vec<Item<'b>>,
        ending: Option<Ending<'b>>,
        usage: Option<Usage>,
    ) -> Response<'b>
    where
        'a: 'b,
    {
        let incomplete_details = match ending {
            Some(Ending::Incomplete(reason)) => Some(IncompleteDetails { reason }),
            Some(Ending::Completed) | None => None,
        };
        Response {
            id: format!("resp_faultlab_{}", self.number),
            object: "response",
            created_at: CREATED,
            status: ending.map_or(IN_PROGRESS, Ending::status),
            error: None,
            incomplete_details,
            model: self.model,
            output,
            parallel_tool_calls: true,
            tool_choice: "auto",
            tools: [],
            usage,
        }
    }
}

/// The events so far. Each is numbered by how many there were before it.
#[derive(Default)]
struct Events(Vec<Bytes>);

impl Events {
    fn push(&mut self, kind: &'static str, fields: impl Serialize) {
        self.0.push(self.next(kind, fields));
    }

    /// The event that would come now.
    fn next(&self, kind: &'static str, fields: impl Serialize) -> Bytes {
        typed_event(kind, &Event { r#type: kind, sequence_number: self.0.len(), fields })
    }
}

#[derive(Serialize)]
struct Event<F> {
    r#type: &'static str,
    sequence_number: usize,
    #[serde(flatten)]
    fields: F,
}

#[derive(Serialize)]
struct ResponseEvent<'a> {
    response: Response<'a>,
}

#[derive(Serialize)]
struct ItemEvent<'a> {
    output_index: usize,
    item: Item<'a>,
}

/// The item that an event is about.
#[derive(Serialize, Clone, Copy)]
struct Place<'a> {
    item_id: &'a str,
    output_index: usize,
}

#[derive(Serialize)]
struct SummaryEvent<'a> {
    #[serde(flatten)]
    item: Place<'a>,
    summary_index: usize,
    #[serde(flatten)]
    content: Content<'a, Summary<'a>>,
}

#[derive(Serialize)]
struct ContentEvent<'a> {
    #[serde(flatten)]
    item: Place<'a>,
    content_index: usize,
    #[serde(flatten)]
    content: Content<'a, OutputText<'a>>,
}

/// An event about text has the probabilities of its tokens, if they were asked for.
#[derive(Serialize)]
struct LoggedEvent<'a> {
    #[serde(flatten)]
    event: ContentEvent<'a>,
    logprobs: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Content<'a, P> {
    Delta(&'a str),
    Text(&'a str),
    Part(P),
}

#[derive(Serialize)]
struct DeltaEvent<'a> {
    #[serde(flatten)]
    item: Place<'a>,
    delta: &'a str,
}

#[derive(Serialize)]
struct ArgumentsEvent<'a> {
    #[serde(flatten)]
    item: Place<'a>,
    arguments: &'a str,
}

/// The fields that OpenAI's SDKs require, and those that say how it ended. What it repeats of the request but
/// the model is left as if nothing had been asked for.
#[derive(Serialize)]
struct Response<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    status: &'static str,
    error: Option<&'static str>,
    incomplete_details: Option<IncompleteDetails<'a>>,
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: bool,
    tool_choice: &'static str,
    tools: [(); 0],
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct IncompleteDetails<'a> {
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    /// Its encrypted content is for the end: "use the completed reasoning item and its `encrypted_content`
    /// from the `response.output_item.done` event … [that] in `response.output_item.added` may be incomplete".
    Reasoning {
        id: String,
        summary: Vec<Summary<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<&'static str>,
    },
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<OutputText<'a>>,
    },
    FunctionCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

impl<'a> Item<'a> {
    /// The item without what is said in it.
    fn begun(id: String, saying: Saying<'a>) -> Self {
        match saying {
            Saying::Thought(_) => Self::Reasoning { id, summary: Vec::new(), encrypted_content: None },
            Saying::Text(_) => {
                Self::Message { id, status: IN_PROGRESS, role: "assistant", content: Vec::new() }
            }
            Saying::Call(call) => Self::call(id, call, "", IN_PROGRESS),
        }
    }

    fn ended(id: String, saying: Saying<'a>, status: &'static str) -> Self {
        match saying {
            Saying::Thought(summary) => Self::Reasoning {
                id,
                summary: summary.map(Summary::of).into_iter().collect(),
                encrypted_content: Some(ENCRYPTED),
            },
            Saying::Text(text) => {
                Self::Message { id, status, role: "assistant", content: vec![OutputText::of(text)] }
            }
            Saying::Call(call) => Self::call(id, call, &call.arguments, status),
        }
    }

    fn call(id: String, call: &'a Call, arguments: &'a str, status: &'static str) -> Self {
        Self::FunctionCall { id, status, call_id: &call.id, name: &call.name, arguments }
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl<'a> Summary<'a> {
    fn of(text: &'a str) -> Self {
        Self { r#type: "summary_text", text }
    }
}

#[derive(Serialize)]
struct OutputText<'a> {
    r#type: &'static str,
    text: &'a str,
    annotations: [(); 0],
    logprobs: [(); 0],
}

impl<'a> OutputText<'a> {
    fn of(text: &'a str) -> Self {
        Self { r#type: "output_text", text, annotations: [], logprobs: [] }
    }
}

#[derive(Serialize)]
struct Usage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

/// What is special about some of the input's tokens, which are counted there already (`ResponseUsage` of OpenAI's
/// SDKs, where both are required).
#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl Usage {
    fn of(said: &Said) -> Self {
        let script::Usage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens } =
            said.usage;
        Self {
            input_tokens: prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: cached_tokens.unwrap_or(0),
                cache_write_tokens: cache_write_tokens.unwrap_or(0),
            },
            output_tokens: completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: said.thinking_tokens() },
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        }
    }
}
