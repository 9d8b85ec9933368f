//! Wording of requests that are larger than the model's context, or than a whole minute's budget.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Test};

pub(in super::super) const RULES: &[Rule] = &[CONTEXT, BUDGET];

/// Sources: OpenAI and all who copy it ("This model's maximum context length is"), Anthropic ("prompt is too long",
/// "exceed context limit"), Gemini ("The input token count … exceeds the maximum number of tokens allowed"), Bedrock
/// ("Input is too long for requested model"), Mistral ("too large for model with … maximum context length"), xAI ("maximum
/// prompt length"), Cohere ("too many tokens: total number of tokens"), TGI and Together ("`inputs` tokens +
/// `max_new_tokens` must be <="), llama.cpp ("exceeds the available context size"), LM Studio ("Trying to keep the first
/// … tokens when context the overflows"), Ollama ("exceeded max context length"), Moonshot ("exceeded model token
/// limit"), DashScope ("Range of input length should be"), Perplexity ("The total length of all messages is too long"),
/// vLLM ("max_tokens must be at least 1, got -186": nothing is left for the answer), new-api (上下文过长).
const CONTEXT: Rule = Rule {
    id: "wording.context",
    why: "The message says that the request is larger than the model's context.",
    test: Test::Wording {
        // A cap of the answer is named by its tokens, without the context.
        at: |seen| {
            let is_of_answer = seen.says(&["output tokens", "completion tokens"]) && !seen.says(&["context"]);
            !seen.is_client_text() && !is_of_answer
        },
        any: &[
            &["maximum context length"],
            &["max context length"],
            &["maximum model length"],
            &["context length exceeded"],
            &["context length is only"],
            &["context_length_exceeded"],
            &["exceeds the context"],
            &["exceeds context"],
            &["exceed context limit"],
            &["exceed context window"],
            &["exceeds model context"],
            &["exceeds max context"],
            &["exceeds the model's context"],
            &["exceeds the model's maximum"],
            &["context window exceed"],
            &["tokens", "context window is"],
            &["exceeded the context window"],
            &["exceeded this model context window"],
            &["exceeds the available context"],
            &["context size has been exceeded"],
            &["configured context size"],
            &["larger than the context"],
            &["longer than the model's context"],
            &["greater than the context length"],
            &["context the overflows"],
            &["prompt is too long"],
            &["prompt too long"],
            &["prompt is too large"],
            &["input is too long"],
            &["input too long"],
            &["input tokens exceed"],
            &["input tokens exceeds"],
            &["input token count", "exceeds"],
            &["prompt token count", "exceeds"],
            &["maximum number of tokens allowed"],
            &["maximum prompt length"],
            &["maximum input length"],
            &["maximum allowed input length"],
            &["exceeds maximum length"],
            &["range of input length should be"],
            &["exceeded model token limit"],
            &["total number of tokens in the prompt"],
            &["tokens in request more than max tokens"],
            &["inputs` tokens", "must be <="],
            &["too large for model with"],
            &["total length of all messages is too long"],
            &["reduce the length of the messages"],
            &["reduce the length of the prompt"],
            &["reduce the length of your"],
            &["reduce your prompt"],
            &["configured input limit"],
            &["max_tokens must be at least 1, got -"],
            &["上下文过长"],
            &["上下文长度"],
            &["超出最大长度"],
            &["prompt 超长"],
        ],
        then: Opinion::forbid(Reason::ContextOverflow),
    },
};

/// One request above a minute's tokens passes at no rate: only shrinking helps.
///
/// Sources: OpenAI and Groq ("Request too large for … on tokens per min (TPM): Limit 30000, Requested 61337").
const BUDGET: Rule = Rule {
    id: "wording.minute_budget",
    why: "This one request is larger than a whole minute's budget of tokens.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text(),
        any: &[&["request too large for", "requested"], &["request is too large for", "tokens per min"]],
        then: Opinion::forbid(Reason::ContextOverflow),
    },
};
