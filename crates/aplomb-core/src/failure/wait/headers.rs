//! Waits in headers.

use super::{Stated, Wait, WaitSource, duration, instant};
use crate::failure::Failure;

/// A retry-after that is an epoch is at most this far away: a plan's month, and some.
const EPOCH_REACH_MS: u64 = 40 * 86_400_000;

/// `retry-after-ms` and `retry-after`; the more precise one first, unless it says nothing.
pub(super) fn retry_after(failure: &Failure, now_ms: Option<u64>) -> Option<Wait> {
    let header = |name: &str| failure.headers.get(name).map(|value| value.trim());
    let precise = header("retry-after-ms").and_then(|value| duration::number(value, 1));
    if let Some(delay_ms) = precise.filter(|ms| *ms > 0) {
        return Some(Wait { delay_ms, source: WaitSource::RetryAfterMs });
    }
    let plain = header("retry-after").and_then(|value| seconds_or_date(value, now_ms));
    if let Some(delay_ms) = plain {
        return Some(Wait { delay_ms, source: WaitSource::RetryAfter });
    }
    precise.map(|delay_ms| Wait { delay_ms, source: WaitSource::RetryAfterMs })
}

/// Source: RFC 9110 §10.2.3.
fn seconds_or_date(value: &str, now_ms: Option<u64>) -> Option<u64> {
    let from_now = |at_ms| Stated::At(at_ms).from(now_ms);
    // Digits first and no fall-through: a date parser takes "120" for a year.
    if value.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        if let Some(at_ms) = instant::rfc3339(value) {
            return from_now(at_ms);
        }
        let Some(ms) = duration::number(value, 1_000) else { return duration::only_span(value) };
        let near = |at_ms: &u64| now_ms.is_some_and(|now_ms| at_ms.abs_diff(now_ms) <= EPOCH_REACH_MS);
        return instant::epoch(ms).filter(near).and_then(from_now).or(Some(ms));
    }
    from_now(instant::http_date(value)?)
}

/// The reset headers of the buckets that are empty; the last one to be full again counts.
///
/// Sources: OpenAI, "Rate limits" (`x-ratelimit-*`; Groq and Azure alike); Anthropic, "Rate limits" (`anthropic-ratelimit-*`);
/// IETF draft-ietf-httpapi-ratelimit-headers, in the forms of versions 07 and 10; the Codex CLI (`x-codex-*`).
pub(super) fn reset(failure: &Failure, now_ms: Option<u64>) -> Option<Wait> {
    (failure.status == Some(429)).then_some(())?;
    let header = |name: &str| failure.headers.get(name).map(|value| value.trim());
    let mut longest: Option<u64> = None;
    let mut take = |value: Option<&str>| {
        let ms = value.and_then(moment).and_then(|stated| stated.from(now_ms));
        longest = longest.max(ms);
    };
    for (name, value) in &failure.headers {
        let value = value.trim();
        if name.contains("ratelimit") && name.contains("remaining") && is_zero(value) {
            take(header(&name.replace("remaining", "reset")));
        } else if name == "ratelimit" {
            take(ietf_reset(value));
        } else if let Some(scope) = name.strip_suffix("-status").filter(|_| value == "rejected") {
            take(header(&format!("{scope}-reset")));
        } else if let Some(scope) = name.strip_suffix("-used-percent")
            && duration::number(value, 1).is_some_and(|percent| percent >= 100)
        {
            take(header(&format!("{scope}-reset-after-seconds")));
        }
    }
    longest.map(|delay_ms| Wait { delay_ms, source: WaitSource::ResetHeader })
}

fn is_zero(value: &str) -> bool {
    duration::number(value, 1) == Some(0)
}

/// `limit=100, remaining=0, reset=30`, or `"default";r=0;t=30`.
fn ietf_reset(value: &str) -> Option<&str> {
    let parameter = |long: &str, short: &str| {
        value.split([',', ';']).find_map(|part| {
            let (name, number) = part.trim().split_once('=')?;
            (name == long || name == short).then_some(number.trim())
        })
    };
    parameter("remaining", "r").filter(|remaining| is_zero(remaining))?;
    parameter("reset", "t")
}

/// A span, a number of seconds, an epoch, or a date.
pub(super) fn moment(value: &str) -> Option<Stated> {
    if let Some(ms) = duration::number(value, 1_000) {
        return Some(instant::epoch(ms).map_or(Stated::For(ms), Stated::At));
    }
    let at = instant::rfc3339(value).or_else(|| instant::http_date(value)).map(Stated::At);
    at.or_else(|| duration::only_span(value).map(Stated::For))
}
