//! Waits in fields of the body.

use serde_json::{Map, Value};

use super::{Stated, duration, headers};

/// The fields that state a wait, the most deliberate first, with the unit of a plain number in milliseconds.
///
/// Sources: google/rpc/error_details.proto (`RetryInfo.retryDelay`); Code Assist's `ErrorInfo` (`quotaResetDelay`);
/// Codex's usage limits (`resets_in_seconds`, `resets_at`); Cloudflare's problem+json (`retry_after`); Hugging Face's
/// inference API (`estimated_time`, in seconds); OpenRouter, which passes its upstream's headers on.
const FIELDS: [(&str, u64); 15] = [
    ("retryDelay", 1_000),
    ("retry_after_ms", 1),
    ("retryAfterMs", 1),
    ("retry-after-ms", 1),
    ("retry_after", 1_000),
    ("retryAfter", 1_000),
    ("retry_after_seconds", 1_000),
    ("retryAfterSeconds", 1_000),
    ("Retry-After", 1_000),
    ("quotaResetDelay", 1_000),
    ("resets_in_seconds", 1_000),
    ("reset_after_seconds", 1_000),
    ("estimated_time", 1_000),
    ("resets_at", 1_000),
    ("X-RateLimit-Reset", 1_000),
];

/// The waits that an object's own fields state, each with its rank; the smallest is the most deliberate one.
pub(in crate::failure) fn in_fields(fields: &Map<String, Value>) -> impl Iterator<Item = (u8, Stated)> {
    FIELDS
        .iter()
        .zip(0u8..)
        .filter_map(|((name, unit_ms), rank)| Some((rank, stated(fields.get(*name)?, *unit_ms)?)))
}

fn stated(value: &Value, unit_ms: u64) -> Option<Stated> {
    match value {
        Value::Number(number) if unit_ms == 1 => duration::number(&number.to_string(), 1).map(Stated::For),
        Value::Number(number) => headers::moment(&number.to_string()),
        Value::String(text) if unit_ms == 1 => duration::number(text.trim(), 1).map(Stated::For),
        Value::String(text) => headers::moment(text.trim()),
        // A protobuf `Duration` as some write it.
        Value::Object(parts) => {
            let part = |name: &str| match parts.get(name) {
                None => Some(0),
                Some(Value::String(text)) => text.parse().ok(),
                Some(number) => number.as_u64(),
            };
            let (seconds, nanos): (u64, u64) = (part("seconds")?, part("nanos")?);
            seconds.checked_mul(1_000)?.checked_add(nanos.div_ceil(1_000_000)).map(Stated::For)
        }
        _ => None,
    }
}
