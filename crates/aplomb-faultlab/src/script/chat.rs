//! What a script needs to know of a request, whatever its protocol, and why any provider refuses one.

/// What a script needs to know of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chat {
    /// The model asked for; answers name it.
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether a stream reports its usage. Only clients of Chat Completions have the choice.
    pub(super) include_usage: bool,
    /// The text of the last user message.
    pub(super) last_user: Option<String>,
    /// The content of the last tool result after the last user message.
    pub(super) tool_result: Option<String>,
    /// The ids of every call in the conversation.
    pub(super) call_ids: Vec<String>,
    /// Calls that came back without a thought before them, where the protocol cares.
    pub(super) unthought: Vec<Unthought>,
    /// Characters of all contents.
    pub(super) chars: usize,
}

/// A call that came back without a thought before it, and why that is refused if the model had one there.
#[derive(Debug, PartialEq)]
pub(super) struct Unthought {
    pub(super) call: String,
    pub(super) rejection: Rejection,
}

/// A request that the provider does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: u16,
    pub(super) message: String,
    /// The field at fault. OpenAI's errors have a place for it, the others name it in the message.
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
}

impl Rejection {
    pub(super) fn invalid(param: Option<String>, message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), param, code: None }
    }

    /// The test is at fault, or the client: somebody asked once too often.
    pub(super) fn script_ended(steps: usize, served: u64, request: u64) -> Self {
        let message = format!(
            "The script has {steps} steps for {served} requests and this was request {request}. \
             Add a step, or say what comes after them with at_end."
        );
        Self { status: 400, message, param: None, code: Some("script_ended") }
    }

    /// The same for a script whose steps are not for every request.
    pub(super) fn matching_steps_ended(steps: usize, served: u64) -> Self {
        let message = format!(
            "The script has {steps} steps that match this request, for {served} requests, and they have all \
             been served. Add a step, or say what comes after them with at_end."
        );
        Self { status: 400, message, param: None, code: Some("script_ended") }
    }

    pub(super) fn no_step_matches(steps: usize) -> Self {
        let message = format!(
            "None of the script's {steps} steps matches this request. Add a step for its last user message, \
             or one without `when`."
        );
        Self { status: 400, message, param: None, code: Some("no_step_matches") }
    }
}
