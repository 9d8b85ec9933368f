//! How long a provider asks us to wait.
//!
//! The order, the most deliberate statement first: `retry-after-ms`, `retry-after`, a field of the body, the message's
//! words, and the reset header of a bucket that is empty.

mod body;
mod duration;
mod headers;
pub(super) mod instant;
mod prose;

use serde::{Deserialize, Serialize};

use super::Failure;
pub(super) use body::in_fields;

/// How long the provider asked us to wait, and where it said so.
///
/// The delay counts from the moment that the response's head arrived. Waits are floors: a decision may wait longer,
/// never shorter. Zero is a value ("now"), so it leaves the back-off as it is.
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
    /// A field of the body: `retryDelay`, `resets_in_seconds`, …
    Body,
    /// The words of the provider's message.
    Message,
    /// A vendor's header about when a bucket is full again.
    ResetHeader,
}

impl WaitSource {
    /// The name as events and attempts show it.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitSource::RetryAfterMs => "retry-after-ms",
            WaitSource::RetryAfter => "retry-after",
            WaitSource::Body => "body",
            WaitSource::Message => "message",
            WaitSource::ResetHeader => "reset-header",
        }
    }
}

/// A wait as it is stated: a span, or a point in time that needs a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stated {
    /// Milliseconds.
    For(u64),
    /// Milliseconds of Unix time.
    At(u64),
}

impl Stated {
    /// The wait from now on. What is past is no wait; without a clock, a point in time says nothing.
    fn from(self, now_ms: Option<u64>) -> Option<u64> {
        match self {
            Stated::For(ms) => Some(ms),
            Stated::At(at_ms) => Some(at_ms.saturating_sub(now_ms?)),
        }
    }
}

impl Wait {
    /// The wait that a failure states, in its headers, in the fields of its body by their rank, or in its words. Garbage and
    /// negative numbers state nothing.
    pub(super) fn stated(failure: &Failure, in_body: &[(u8, Stated)], prose: &str) -> Option<Wait> {
        let now_ms = now_ms(failure);
        headers::retry_after(failure, now_ms)
            .or_else(|| {
                let delay_ms = in_body.iter().min_by_key(|(rank, _)| *rank)?.1.from(now_ms)?;
                Some(Wait { delay_ms, source: WaitSource::Body })
            })
            .or_else(|| {
                let delay_ms = prose::stated(prose)?.from(now_ms)?;
                Some(Wait { delay_ms, source: WaitSource::Message })
            })
            .or_else(|| headers::reset(failure, now_ms))
    }
}

/// The response's own `Date`, or else its arrival: the server's clock is the one that its dates come from; ours may be
/// off.
fn now_ms(failure: &Failure) -> Option<u64> {
    failure.headers.get("date").and_then(|date| instant::http_date(date)).or(failure.received_at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::classify;
    use proptest::prelude::*;

    /// Wed, 21 Oct 2015 07:28:00 GMT.
    const NOW: u64 = 1_445_412_480_000;

    fn failure(status: u16, body: &str, headers: &[(&str, &str)]) -> Failure {
        let mut failure = Failure::status(status, body.as_bytes()).with_headers(headers.iter().copied());
        failure.received_at_ms = Some(NOW);
        failure
    }

    fn wait(headers: &[(&str, &str)]) -> Option<u64> {
        classify(&failure(429, "", headers)).wait.map(|wait| wait.delay_ms)
    }

    fn in_body(body: &str) -> Option<(u64, &'static str)> {
        classify(&failure(429, body, &[])).wait.map(|wait| (wait.delay_ms, wait.source.as_str()))
    }

    #[test]
    fn the_millisecond_header_wins_over_the_seconds() {
        assert_eq!(wait(&[("retry-after-ms", "1500"), ("retry-after", "9")]), Some(1500));
        for nothing in ["soon", "0", "-5"] {
            assert_eq!(wait(&[("retry-after-ms", nothing), ("retry-after", "9")]), Some(9000), "{nothing}");
        }
        assert_eq!(wait(&[("retry-after-ms", "0")]), Some(0));
    }

    #[test]
    fn seconds_may_be_decimal_and_round_up() {
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.0001")]), Some(1));
        assert_eq!(wait(&[("retry-after", " 7 ")]), Some(7000));
        assert_eq!(wait(&[("retry-after", "99999999")]), Some(99_999_999_000));
    }

    #[test]
    fn a_date_counts_from_the_servers_own_clock_if_it_tells_it() {
        let date = "Wed, 21 Oct 2015 07:28:30 GMT";
        assert_eq!(wait(&[("retry-after", date)]), Some(30_000));
        assert_eq!(wait(&[("retry-after", date), ("date", "Wed, 21 Oct 2015 07:28:20 GMT")]), Some(10_000));
        assert_eq!(wait(&[("retry-after", "Wednesday, 21-Oct-15 07:28:30 GMT")]), Some(30_000));
        assert_eq!(wait(&[("retry-after", "Wed Oct 21 07:28:30 2015")]), Some(30_000));
        assert_eq!(wait(&[("retry-after", "2015-10-21T07:28:30Z")]), Some(30_000));
    }

    #[test]
    fn an_epoch_counts_from_the_arrival() {
        assert_eq!(wait(&[("retry-after", "1445412510")]), Some(30_000));
        assert_eq!(wait(&[("retry-after", "1445412510000")]), Some(30_000));
        // Years away: a number that somebody chose, and not a moment.
        assert_eq!(wait(&[("retry-after", "1772359260")]), Some(1_772_359_260_000));
    }

    #[test]
    fn zero_and_what_is_past_mean_now() {
        for value in ["0", "0.0", "Wed, 21 Oct 2015 07:27:00 GMT"] {
            assert_eq!(wait(&[("retry-after", value)]), Some(0), "{value}");
        }
    }

    #[test]
    fn what_is_negative_or_garbage_states_no_wait() {
        for value in
            ["-1", "-5", "NaN", "inf", "Infinity", "1e300", "garbage", "", "5, 10", "99999999999999999999999"]
        {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
    }

    #[test]
    fn a_field_of_the_body_wins_over_its_words() {
        let google = r#"{"error":{"message":"Please retry in 56.1s.","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"45.837906927s"}]}}"#;
        assert_eq!(in_body(google), Some((45_838, "body")));
        assert_eq!(in_body(r#"{"error":{"message":"Please retry in 56.1s."}}"#), Some((56_100, "message")));
    }

    #[test]
    fn fields_state_waits_in_many_ways() {
        for (body, ms) in [
            (r#"{"error":{"resets_at":1445412510,"resets_in_seconds":602705}}"#, 602_705_000),
            (r#"{"error":{"resets_at":1445412510}}"#, 30_000),
            (r#"{"retry_after":120}"#, 120_000),
            (r#"{"error":{"retry_after_ms":250}}"#, 250),
            (r#"{"error":"loading","estimated_time":20.0}"#, 20_000),
            (r#"{"error":{"details":[{"metadata":{"quotaResetDelay":"373.801628ms"}}]}}"#, 374),
            (r#"{"error":{"details":[{"retryDelay":{"seconds":7,"nanos":500000000}}]}}"#, 7_500),
            (r#"{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"1445412510000"}}}}"#, 30_000),
            // Zero is a value, whatever the words beside it say.
            (r#"{"error":{"details":[{"retryDelay":"0s"}]}}"#, 0),
            (r#"{"error":{"message":"Please retry in 50s.","details":[{"retryDelay":"0s"}]}}"#, 0),
        ] {
            assert_eq!(in_body(body), Some((ms, "body")), "{body}");
        }
    }

    #[test]
    fn words_state_waits_in_many_ways() {
        for (words, ms) in [
            ("Please try again in 1m26.4s. Visit", 86_400),
            ("Please try again in 28ms.", 28),
            ("Please retry after 27 seconds.", 27_000),
            ("please try again after 1 seconds", 1_000),
            ("Your quota will reset after 1h43m56s.", 6_236_000),
            ("Weekly usage limit reached. Resets in 6hr 29min.", 23_340_000),
            ("Too fast. Please wait 5 seconds", 5_000),
            ("limit reached, resets at 2015-10-21T07:30:00Z (2056)", 120_000),
        ] {
            assert_eq!(in_body(&format!(r#"{{"message":"{words}"}}"#)), Some((ms, "message")), "{words}");
        }
        for words in [
            "try again in a few minutes",
            "retry in the next release",
            "wait 5 tokens",
            "Resets at 10:00 UTC",
        ] {
            assert_eq!(in_body(&format!(r#"{{"message":"{words}"}}"#)), None, "{words}");
        }
    }

    #[test]
    fn an_empty_bucket_says_when_it_is_full_again() {
        for (headers, ms) in [
            // OpenAI, Groq, Azure.
            (&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")][..], 360_000),
            // Anthropic.
            (
                &[
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                    ("anthropic-ratelimit-input-tokens-reset", "2015-10-21T07:28:37Z"),
                ][..],
                37_000,
            ),
            (
                &[
                    ("anthropic-ratelimit-unified-status", "rejected"),
                    ("anthropic-ratelimit-unified-reset", "1445412510"),
                ][..],
                30_000,
            ),
            // The IETF's fields, in their earlier and their later form.
            (&[("ratelimit-remaining", "0"), ("ratelimit-reset", "30")][..], 30_000),
            (&[("ratelimit", "limit=100, remaining=0, reset=30")][..], 30_000),
            (&[("ratelimit", "\"default\";r=0;t=30")][..], 30_000),
            // Codex.
            (
                &[("x-codex-primary-used-percent", "100"), ("x-codex-primary-reset-after-seconds", "431")][..],
                431_000,
            ),
            // Two empty buckets: both must be full again.
            (
                &[
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "20s"),
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "1.5s"),
                ][..],
                20_000,
            ),
        ] {
            assert_eq!(wait(headers), Some(ms), "{headers:?}");
        }
    }

    #[test]
    fn a_bucket_that_is_not_empty_or_not_asked_for_says_nothing() {
        let headers = [("x-ratelimit-remaining-tokens", "149984"), ("x-ratelimit-reset-tokens", "6ms")];
        assert_eq!(wait(&headers), None);
        let empty = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6ms")];
        assert_eq!(classify(&failure(400, "", &empty)).wait, None);
    }

    proptest! {
        #[test]
        fn any_header_and_any_body_state_a_finite_wait_or_none(
            name in prop::sample::select(vec![
                "retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "ratelimit", "date",
                "anthropic-ratelimit-unified-reset", "x-codex-primary-reset-after-seconds",
            ]),
            value in "\\PC{0,40}",
            body in "\\PC{0,60}",
        ) {
            let headers = [
                (name, value.as_str()),
                ("x-ratelimit-remaining-requests", "0"),
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("x-codex-primary-used-percent", "100"),
            ];
            // Whatever it says: a number of milliseconds, or nothing.
            let _: Option<u64> = classify(&failure(429, &body, &headers)).wait.map(|wait| wait.delay_ms);
        }
    }
}
