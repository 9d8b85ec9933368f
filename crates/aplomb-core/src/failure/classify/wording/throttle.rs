//! Wording of what passes: failures of the provider's own, time limits, throttles, lack of capacity.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Seen, Test};

/// So vague that everything else knows better.
pub(in super::super) const VAGUE: &[Rule] = &[SERVER];

pub(in super::super) const RULES: &[Rule] = &[TIMEOUT, RATE, CAPACITY];

/// Neither the client's own text nor a status that says what it is.
fn without_a_status(seen: &Seen<'_>) -> bool {
    seen.status().is_none() && !seen.is_client_text()
}

/// Sources: Anthropic's `Internal server error`, OpenAI's "The server had an error…" and "An error occurred while
/// processing your request", Bedrock's stream exceptions, Ollama's "an error was encountered while running the model".
const SERVER: Rule = Rule {
    id: "wording.server",
    why: "The message says that the provider failed by itself.",
    test: Test::Wording {
        at: without_a_status,
        any: &[
            &["internal server error"],
            &["\ninternal error"],
            &["internal error encountered"],
            &["internal error has occurred"],
            &["the server had an error"],
            &["an error occurred while processing"],
            &["unexpected error"],
            &["an error was encountered while running the model"],
            &["model runner has unexpectedly stopped"],
            &["\nprovider returned error"],
            &["upstream error"],
            &["bad gateway"],
            &["service unavailable"],
            &["temporarily unavailable"],
            &["streaming response failed"],
            &["provider disconnected"],
            &["cuda error"],
            &["out of memory"],
            &["enginecore"],
        ],
        then: Opinion::retry(Reason::ServerError),
    },
};

/// Sources: OpenAI and OpenRouter ("Request timed out"), Google ("Deadline expired before operation could complete"),
/// Anthropic's `timeout_error`, Envoy ("upstream request timeout"), Vercel.
const TIMEOUT: Rule = Rule {
    id: "wording.timeout",
    why: "The message says that a time limit passed.",
    test: Test::Wording {
        at: |seen| !seen.is_client_error() && !seen.is_client_text() && seen.status() != Some(429),
        any: &[
            &["request timed out"],
            &["request timeout"],
            &["timed out while"],
            &["timed out reading"],
            &["timed out waiting"],
            &["deadline exceeded"],
            &["deadline expired"],
            &["gateway timeout"],
            &["gateway time-out"],
            &["read timeout"],
            &["took too long"],
            &["operation timed out"],
            &["connection timed out"],
            &["function_invocation_timeout"],
            &["etimedout"],
        ],
        then: Opinion::retry(Reason::Timeout),
    },
};

/// Sources: OpenAI ("Rate limit reached for … on requests per min"), Anthropic ("would exceed your account's rate
/// limit"), Azure ("have exceeded … rate limit of your current … pricing tier"), Bedrock ("Too many requests, please wait
/// before trying again"), OpenRouter ("is temporarily rate-limited upstream"), Moonshot ("reached organization max RPM"),
/// DashScope ("Allocated quota exceeded"), one-api (请求过于频繁).
const RATE: Rule = Rule {
    id: "wording.throttle",
    why: "The message says that requests or tokens come too fast.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && !matches!(seen.status(), Some(401 | 404 | 413)),
        any: &[
            &["rate limit exceeded"],
            &["rate limit is exceeded"],
            &["rate limit reached"],
            &["reached the rate limit"],
            &["exceeded rate limit"],
            &["exceeded your rate limit"],
            &["exceeded your current rate limit"],
            &["exceeded the rate limit"],
            &["exceed the rate limit"],
            &["would exceed your", "rate limit"],
            &["exceeded token rate limit"],
            &["exceeded call rate limit"],
            &["secondary rate limit"],
            &["\nrate limited"],
            &["rate-limited"],
            &["being rate limited"],
            &["\ntoo many requests"],
            &["too many requests, please"],
            &["too many tokens, please wait"],
            &["too many concurrent"],
            &["concurrency limit"],
            &["concurrent requests", "limit"],
            &["requests per minute limit exceeded"],
            &["tokens per minute limit exceeded"],
            &["organization max rpm"],
            &["organization max tpm"],
            &["organization max concurrency"],
            &["request was throttled"],
            &["requests throttling triggered"],
            &["rate increased too quickly"],
            &["too frequent"],
            &["frequency limit"],
            &["rate limiting"],
            &["slow down"],
            &["请求过于频繁"],
            &["请求频率"],
            &["频率过高"],
            &["并发数过高"],
            &["速率限制"],
        ],
        then: Opinion::retry(Reason::RateLimit),
    },
};

/// Sources: Anthropic ("Overloaded"), OpenAI ("The engine is currently overloaded", "Our servers are currently
/// overloaded"), Gemini ("The model is overloaded", "experiencing high demand"), Groq, DeepSeek ("Service is too busy"),
/// Mistral ("Service tier capacity exceeded"), Codex ("Selected model is at capacity"), Ollama ("server busy"), NVIDIA NIM
/// ("Worker local total request limit reached"), Hugging Face ("is currently loading"), Bedrock ("Too many connections"),
/// new-api (负载已饱和), Z.AI (访问量过大).
const CAPACITY: Rule = Rule {
    id: "wording.capacity",
    why: "The message says that the provider has no capacity at the moment.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && seen.status() != Some(401),
        any: &[
            &["\noverloaded"],
            &["is overloaded"],
            &["are overloaded"],
            &["engine overloaded"],
            &["server overloaded"],
            &["currently overloaded"],
            &["temporarily overloaded"],
            &["be overloaded"],
            &["due to overloading"],
            &["is at capacity"],
            &["at full capacity"],
            &["over capacity"],
            &["capacity exceeded"],
            &["capacity temporarily exceeded"],
            &["exceeded capacity"],
            &["no capacity available"],
            &["insufficient capacity"],
            &["not enough capacity"],
            &["capacity constraints"],
            &["too busy"],
            &["server busy"],
            &["server is busy"],
            &["currently busy"],
            &["system is busy"],
            &["high demand"],
            &["high load"],
            &["heavy load"],
            &["high traffic"],
            &["high volume of requests"],
            &["is currently loading"],
            &["\nloading model"],
            &["model is loading"],
            &["worker local total request limit"],
            &["too many connections, please wait"],
            &["maximum pending requests exceeded"],
            &["queue is full"],
            &["try again later or use the on_demand tier"],
            &["负载已饱和"],
            &["负载较高"],
            &["访问量过大"],
            &["繁忙"],
            &["过载"],
        ],
        then: Opinion::retry(Reason::Overloaded),
    },
};
