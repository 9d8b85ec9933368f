//! Token counts with a cache, and thoughts that nobody may read, byte for byte on every protocol.
//!
//! Sources: <https://platform.openai.com/docs/guides/prompt-caching> and OpenAI's SDKs for
//! `prompt_tokens_details`,
//! <https://platform.claude.com/docs/en/build-with-claude/prompt-caching> for the three counts of a prompt, and
//! <https://platform.claude.com/docs/en/build-with-claude/extended-thinking> for `redacted_thinking`.

use crate::lab::{self, LAST_CHUNK, chunks, script, start};
use crate::wires::{ANTHROPIC, GEMINI, OPENAI, RESPONSES};

const CACHED: &str = r#"{ "text": "Hello you", "usage": {
    "prompt_tokens": 100, "completion_tokens": 3, "cached_tokens": 60, "cache_write_tokens": 30 } }"#;

#[tokio::test(flavor = "multi_thread")]
async fn openai_counts_cached_tokens_inside_the_prompt() {
    let usage = concat!(
        r#""usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103,"#,
        r#""prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30}}"#
    );
    let plain = r#""usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}"#;
    let (mut client, _server) = OPENAI.ask(&script(CACHED, "null"), OPENAI.plain).await;
    let document = OPENAI.document.replace(plain, usage);
    client.expect(&(OPENAI.plain_head(document.len()) + &document));

    let request = OPENAI
        .streamed
        .replace(r#""stream":true"#, r#""stream":true,"stream_options":{"include_usage":true}"#);
    let (mut client, _server) = OPENAI.ask(&script(CACHED, "null"), &request).await;
    client.read_through(&format!(r#""choices":[],{usage}}}"#));
}

/// 100 tokens, of which 60 were read and 30 written: 10 are neither.
#[tokio::test(flavor = "multi_thread")]
async fn anthropic_counts_cached_tokens_beside_the_prompt() {
    let usage = concat!(
        r#""usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":60,"#,
        r#""output_tokens":"#
    );
    let plain = r#""usage":{"input_tokens":1,"output_tokens":"#;
    let (mut client, _server) = ANTHROPIC.ask(&script(CACHED, "null"), ANTHROPIC.plain).await;
    let document = ANTHROPIC.document.replace(plain, usage);
    client.expect(&(ANTHROPIC.plain_head(document.len()) + &document));

    let (mut client, _server) = ANTHROPIC.ask(&script(CACHED, "null"), ANTHROPIC.streamed).await;
    let start = ANTHROPIC.events[0].replace(plain, usage);
    let events = [&[start.as_str()], &ANTHROPIC.events[1..]].concat();
    client.expect(&(ANTHROPIC.stream_head() + &chunks(&events) + LAST_CHUNK));
}

const REDACTED: &str = r#"{ "thinking": "Hm", "redacted_thinking": true, "text": "So" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_redacted_thought_is_a_block_that_is_whole_from_its_start() {
    let server = start(&script(REDACTED, "null")).await;
    let mut client = lab::ask(&server, ANTHROPIC.path, ANTHROPIC.streamed);
    let block = concat!(
        "event: content_block_start\n",
        r#"data: {"type":"content_block_start","index":1,"#,
        r#""content_block":{"type":"redacted_thinking","data":"ZmF1bHRsYWIsIHVuc2Vlbg=="}}"#,
        "\n\n"
    );
    let end = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n";
    let stream = client.read_through(LAST_CHUNK);
    assert!(stream.contains(&chunks(&[block, end])), "{stream}");

    let server = start(&script(REDACTED, "null")).await;
    let mut client = lab::ask(&server, ANTHROPIC.path, ANTHROPIC.plain);
    client.read_through(concat!(
        r#""content":[{"type":"thinking","thinking":"Hm","signature":"ZmF1bHRsYWI="},"#,
        r#"{"type":"redacted_thinking","data":"ZmF1bHRsYWIsIHVuc2Vlbg=="},{"type":"text","text":"So"}]"#
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_wire_has_no_redacted_thoughts() {
    for request in [OPENAI.streamed, OPENAI.plain] {
        let with = script(r#"{ "text": "Hello you", "redacted_thinking": true }"#, "null");
        let (mut client, _server) = OPENAI.ask(&with, request).await;
        let whole = if request == OPENAI.plain { OPENAI.whole_document() } else { OPENAI.whole_stream() };
        client.expect(&whole);
    }
}

/// `ResponseUsage` of OpenAI's SDKs: both details are inside of the input's count.
#[tokio::test(flavor = "multi_thread")]
async fn responses_counts_cached_tokens_inside_the_input() {
    let usage = concat!(
        r#""usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},"#,
        r#""output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":103}"#
    );
    for request in [RESPONSES.streamed, RESPONSES.plain] {
        let (mut client, _server) = RESPONSES.ask(&script(CACHED, "null"), request).await;
        client.read_through(usage);
    }
}

/// <https://ai.google.dev/api/generate-content>, "UsageMetadata": the cached part is inside of the prompt, and there
/// is no count of what was written.
#[tokio::test(flavor = "multi_thread")]
async fn gemini_counts_cached_tokens_inside_the_prompt() {
    let usage = concat!(
        r#""usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":3,"totalTokenCount":103,"#,
        r#""cachedContentTokenCount":60}"#
    );
    for request in [GEMINI.streamed, GEMINI.plain] {
        let (mut client, _server) = GEMINI.ask(&script(CACHED, "null"), request).await;
        client.read_through(usage);
    }
}
