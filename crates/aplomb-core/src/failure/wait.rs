//! How long a provider asks us to wait.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Failure;

/// How long the provider asked us to wait, and where it said so.
///
/// The delay counts from the moment that the response's head arrived. Waits are floors: a decision may wait longer,
/// never shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Milliseconds, rounded up.
    pub delay_ms: u64,
    /// Where the provider said so.
    pub source: WaitSource,
}

/// Where a wait was stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WaitSource {
    /// The header `retry-after-ms`.
    RetryAfterMs,
    /// The header `retry-after`.
    RetryAfter,
}

impl WaitSource {
    /// The name as events and attempts show it.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitSource::RetryAfterMs => "retry-after-ms",
            WaitSource::RetryAfter => "retry-after",
        }
    }
}

impl Wait {
    /// The wait that a failure states; the more precise header first. Garbage and negative numbers state nothing.
    pub fn of(failure: &Failure) -> Option<Wait> {
        let header = |name: &str| failure.headers.get(name).map(|value| value.trim());
        // "0" and a date in the past are no wait: the back-off of the layer applies.
        let precise = header("retry-after-ms").and_then(|value| number(value, 1.0)).filter(|ms| *ms > 0);
        if let Some(delay_ms) = precise {
            return Some(Wait { delay_ms, source: WaitSource::RetryAfterMs });
        }
        let value = header("retry-after")?;
        // Digits first and no fall-through: a date parser takes "120" for a year.
        let delay_ms = if value.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
            number(value, 1000.0)?
        } else {
            until(value, failure)?
        };
        (delay_ms > 0).then_some(Wait { delay_ms, source: WaitSource::RetryAfter })
    }
}

/// A finite, non-negative number of units of `unit_ms`, as whole milliseconds, rounded up.
fn number(value: &str, unit_ms: f64) -> Option<u64> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = value.parse().ok().filter(|_| plain)?;
    let ms = (number * unit_ms).ceil();
    // The largest u64 is not a double; 2^64 is the first one that does not fit.
    (ms < 18_446_744_073_709_551_616.0).then_some(ms as u64)
}

/// Milliseconds from the response's own `Date`, or else from its arrival, to an HTTP date.
///
/// The server's clock is the one that both dates come from; ours may be off.
fn until(date: &str, failure: &Failure) -> Option<u64> {
    let target = httpdate::parse_http_date(date).ok()?;
    let now = match failure.headers.get("date").and_then(|date| httpdate::parse_http_date(date).ok()) {
        Some(sent) => sent,
        None => UNIX_EPOCH + Duration::from_millis(failure.received_at_ms?),
    };
    let wait = target.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&str, &str)]) -> Option<u64> {
        let mut failure = Failure::status(429, b"").with_headers(headers.iter().copied());
        failure.received_at_ms = Some(1_445_412_480_000); // Wed, 21 Oct 2015 07:28:00 GMT
        Wait::of(&failure).map(|wait| wait.delay_ms)
    }

    #[test]
    fn the_millisecond_header_wins_over_the_seconds() {
        assert_eq!(wait(&[("retry-after-ms", "1500"), ("retry-after", "9")]), Some(1500));
        for nothing in ["soon", "0", "-5"] {
            assert_eq!(wait(&[("retry-after-ms", nothing), ("retry-after", "9")]), Some(9000), "{nothing}");
        }
    }

    #[test]
    fn seconds_may_be_decimal_and_round_up() {
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.0001")]), Some(1));
    }

    #[test]
    fn a_date_counts_from_the_servers_own_clock_if_it_tells_it() {
        let date = "Wed, 21 Oct 2015 07:28:30 GMT";
        assert_eq!(wait(&[("retry-after", date)]), Some(30_000));
        assert_eq!(wait(&[("retry-after", date), ("date", "Wed, 21 Oct 2015 07:28:20 GMT")]), Some(10_000));
    }

    #[test]
    fn what_is_past_zero_negative_or_garbage_states_no_wait() {
        for value in [
            "0",
            "-1",
            "-5",
            "NaN",
            "inf",
            "Infinity",
            "1e300",
            "garbage",
            "",
            "Wed, 21 Oct 2015 07:27:00 GMT",
        ] {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(wait(&[("retry-after", "99999999999999999999999")]), None);
    }
}
