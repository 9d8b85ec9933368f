//! Points in time as providers write them.

use std::time::UNIX_EPOCH;

use jiff::Timestamp;

/// The epochs that are taken for points in time: 2001 to 2099. What is smaller is a span.
const EPOCH_SECONDS: std::ops::Range<u64> = 1_000_000_000..4_070_908_800;

/// Milliseconds of Unix time, out of an RFC 3339 text.
pub(crate) fn rfc3339(text: &str) -> Option<u64> {
    // Dates alone, and times without a zone, say nothing that can be counted from.
    (text.len() >= 20).then_some(())?;
    let timestamp: Timestamp = text.parse().ok()?;
    u64::try_from(timestamp.as_millisecond()).ok()
}

/// Milliseconds of Unix time, out of one of the three forms of an HTTP date (RFC 9110 §5.6.7).
pub(super) fn http_date(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    u64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// Milliseconds of Unix time, out of a number that can only be an epoch: seconds or milliseconds.
pub(super) fn epoch(number_ms: u64) -> Option<u64> {
    // The number was read as seconds, hence is in milliseconds now.
    let seconds = number_ms / 1_000;
    if EPOCH_SECONDS.contains(&seconds) {
        return Some(number_ms);
    }
    EPOCH_SECONDS.contains(&(seconds / 1_000)).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 01 Mar 2026 10:00:00 GMT.
    const TEN: u64 = 1_772_359_200_000;

    #[test]
    fn the_forms_of_a_date_are_the_same_moment() {
        assert_eq!(rfc3339("2026-03-01T10:00:00Z"), Some(TEN));
        assert_eq!(rfc3339("2026-03-01T12:00:00.000+02:00"), Some(TEN));
        assert_eq!(http_date("Sun, 01 Mar 2026 10:00:00 GMT"), Some(TEN));
        assert_eq!(http_date("Sunday, 01-Mar-26 10:00:00 GMT"), Some(TEN));
        assert_eq!(http_date("Sun Mar  1 10:00:00 2026"), Some(TEN));
    }

    #[test]
    fn a_date_without_a_zone_is_none() {
        for text in ["2026-03-01", "2026-03-01 22:19:54", "10:00 UTC", "120", ""] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn epochs_are_told_from_spans_by_their_size() {
        assert_eq!(epoch(1_772_359_200 * 1_000), Some(TEN));
        assert_eq!(epoch(TEN * 1_000), Some(TEN));
        assert_eq!(epoch(604_800 * 1_000), None);
        assert_eq!(epoch(99_999_999 * 1_000), None);
    }
}
