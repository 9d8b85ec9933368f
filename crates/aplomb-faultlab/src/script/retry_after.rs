//! The ways in which a provider says how long to wait. Knows no clock: whoever asks brings the time.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How long a client is asked to wait, and in which form. What does not fit here is a header like any other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RetryAfter {
    /// `retry-after` in seconds: `1`. Decimals (`1.5`) and negative numbers (`-1`) are sent as they are, though
    /// RFC 9110 (10.2.3) has neither: gateways send both.
    Seconds(f64),
    /// `retry-after-ms`, which OpenAI and Azure send beside or in place of `retry-after`.
    Milliseconds(f64),
    /// `retry-after` as the date that it will be then.
    Date {
        /// Seconds from the moment in which the answer begins; negative for a date that is past. A date has
        /// whole seconds, and what is left of the moment's is cut off.
        in_seconds: i64,
        /// How the date is written.
        #[serde(default)]
        form: DateForm,
    },
    /// `retry-after` with this text, for what is no time at all: `soon`.
    Text(String),
}

/// The forms of a date in HTTP (RFC 9110, 5.6.7). A client must understand all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DateForm {
    /// `Sun, 06 Nov 1994 08:49:37 GMT`, the only one that servers may send today.
    #[default]
    ImfFixdate,
    /// `Sunday, 06-Nov-94 08:49:37 GMT`, of RFC 850.
    Rfc850,
    /// `Sun Nov  6 08:49:37 1994`, of ANSI C.
    Asctime,
}

impl RetryAfter {
    /// The header, at this wall time (since the Unix epoch).
    pub(super) fn header(&self, now: Duration) -> (&'static str, String) {
        match self {
            Self::Seconds(seconds) => ("retry-after", seconds.to_string()),
            Self::Milliseconds(milliseconds) => ("retry-after-ms", milliseconds.to_string()),
            Self::Date { in_seconds, form } => {
                let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
                // A script's limits keep it in range, and whose clock is thousands of years off gets the epoch.
                let then = Timestamp::from_second(now.saturating_add(*in_seconds)).unwrap_or_default();
                ("retry-after", then.strftime(form.format()).to_string())
            }
            Self::Text(text) => ("retry-after", text.clone()),
        }
    }
}

impl DateForm {
    /// A timestamp is shown in UTC.
    fn format(self) -> &'static str {
        match self {
            Self::ImfFixdate => "%a, %d %b %Y %H:%M:%S GMT",
            Self::Rfc850 => "%A, %d-%b-%y %H:%M:%S GMT",
            Self::Asctime => "%a %b %e %H:%M:%S %Y",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06 08:49:37 UTC, the moment of RFC 9110's examples, in Unix time.
    const EXAMPLE: Duration = Duration::from_secs(784_111_777);

    fn date(in_seconds: i64, form: DateForm) -> String {
        let (name, value) = RetryAfter::Date { in_seconds, form }.header(EXAMPLE);
        assert_eq!(name, "retry-after");
        value
    }

    #[test]
    fn a_date_has_the_three_forms_of_rfc_9110() {
        assert_eq!(date(0, DateForm::ImfFixdate), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(0, DateForm::Rfc850), "Sunday, 06-Nov-94 08:49:37 GMT");
        assert_eq!(date(0, DateForm::Asctime), "Sun Nov  6 08:49:37 1994");
    }

    #[test]
    fn a_date_is_counted_from_now_in_either_direction() {
        assert_eq!(date(23, DateForm::ImfFixdate), "Sun, 06 Nov 1994 08:50:00 GMT");
        assert_eq!(date(-97, DateForm::ImfFixdate), "Sun, 06 Nov 1994 08:48:00 GMT");
    }

    #[test]
    fn numbers_are_written_as_people_write_them() {
        let seconds = |seconds| RetryAfter::Seconds(seconds).header(EXAMPLE);
        assert_eq!(seconds(1.0), ("retry-after", "1".to_owned()));
        assert_eq!(seconds(1.5), ("retry-after", "1.5".to_owned()));
        assert_eq!(seconds(-2.0), ("retry-after", "-2".to_owned()));
        assert_eq!(RetryAfter::Milliseconds(250.0).header(EXAMPLE), ("retry-after-ms", "250".to_owned()));
        assert_eq!(RetryAfter::Text("soon".to_owned()).header(EXAMPLE), ("retry-after", "soon".to_owned()));
    }
}
