//! Numbers and spans of time as providers write them, exactly: no float rounds a wait up by a millisecond.

/// A wait in milliseconds, rounded up, out of a number of units.
///
/// `None` for anything that is not a plain decimal number, and for what does not fit.
pub(super) fn number(text: &str, unit_ms: u64) -> Option<u64> {
    let nanos = Decimal::read(text)?.times_ms(unit_ms)?;
    ms_of(nanos)
}

/// The units that follow a number, in milliseconds. The longer names first, since all begin alike.
const UNITS: [(&str, u64); 22] = [
    ("milliseconds", 1),
    ("millisecond", 1),
    ("msecs", 1),
    ("ms", 1),
    ("seconds", 1_000),
    ("second", 1_000),
    ("secs", 1_000),
    ("sec", 1_000),
    ("s", 1_000),
    ("minutes", 60_000),
    ("minute", 60_000),
    ("mins", 60_000),
    ("min", 60_000),
    ("m", 60_000),
    ("hours", 3_600_000),
    ("hour", 3_600_000),
    ("hrs", 3_600_000),
    ("hr", 3_600_000),
    ("h", 3_600_000),
    ("days", 86_400_000),
    ("day", 86_400_000),
    ("d", 86_400_000),
];

/// The span that a text begins with: `1m30.5s`, `6hr 29min`, `45.837906927s`, `27 seconds`, `2 minutes and 5 seconds`.
///
/// Source: Go's `time.Duration.String`, protobuf's JSON mapping of `Duration` (up to nine fractional digits), and the
/// prose of OpenAI, Groq, Azure and Gemini.
pub(super) fn span(text: &str) -> Option<u64> {
    Some(span_and_rest(text)?.0)
}

/// A text that is a span and nothing else.
pub(super) fn only_span(text: &str) -> Option<u64> {
    let (ms, rest) = span_and_rest(text)?;
    rest.trim().is_empty().then_some(ms)
}

fn span_and_rest(text: &str) -> Option<(u64, &str)> {
    let mut rest = text.trim_start();
    let mut total: Option<u128> = None;
    loop {
        let digits =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start_matches(' ');
        let unit = UNITS.iter().find_map(|(name, unit_ms)| {
            let start = after.get(..name.len())?;
            let tail = after.get(name.len()..)?;
            let ends = !tail.starts_with(|next: char| next.is_alphabetic());
            (start.eq_ignore_ascii_case(name) && ends).then_some((*unit_ms, tail))
        });
        let part = unit.and_then(|(unit_ms, tail)| Some((Decimal::read(number)?.times_ms(unit_ms)?, tail)));
        let Some((nanos, tail)) = part else { break };
        total = Some(total.unwrap_or_default().checked_add(nanos)?);
        rest = tail.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    Some((ms_of(total?)?, rest))
}

fn ms_of(nanos: u128) -> Option<u64> {
    u64::try_from(nanos.div_ceil(1_000_000)).ok()
}

/// A non-negative decimal number: its whole part, and the rest in billionths, rounded up.
struct Decimal {
    whole: u128,
    billionths: u128,
}

impl Decimal {
    fn read(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
        let kept = fraction.get(..9).unwrap_or(fraction);
        let mut billionths: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        for _ in kept.len()..9 {
            billionths *= 10;
        }
        let beyond = fraction.get(9..).is_some_and(|rest| rest.bytes().any(|digit| digit != b'0'));
        Some(Decimal { whole, billionths: billionths + u128::from(beyond) })
    }

    /// In nanoseconds, of a unit that is whole milliseconds.
    fn times_ms(&self, unit_ms: u64) -> Option<u128> {
        let unit = u128::from(unit_ms);
        let fraction = (self.billionths * unit).div_ceil(1_000);
        self.whole.checked_mul(unit * 1_000_000)?.checked_add(fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_span_is_the_sum_of_its_parts_rounded_up() {
        for (text, ms) in [
            ("1m30.5s", 60_000 + 30_500),
            ("6hr 29min", 6 * 3_600_000 + 29 * 60_000),
            ("1h43m56s", 3_600_000 + 43 * 60_000 + 56_000),
            ("45.837906927s", 45_838),
            ("1.984999999s", 1_985),
            ("86.4s", 86_400),
            ("539.477544ms", 540),
            ("0.539477544s", 540),
            ("27 seconds. Please", 27_000),
            ("2 minutes and 5 seconds", 125_000),
            ("1 day, 2 hours", 86_400_000 + 7_200_000),
            ("20S", 20_000),
            ("0s", 0),
            ("0.0000000001s", 1),
        ] {
            assert_eq!(span(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_none() {
        for text in [
            "",
            "soon",
            "s",
            ".",
            ".s",
            "5",
            "5 tokens",
            "5 monkeys",
            "-5s",
            "1.2.3s",
            "99999999999999999999d",
        ] {
            assert_eq!(span(text), None, "{text}");
        }
        assert_eq!(only_span("20s left"), None);
        assert_eq!(only_span("20"), None);
        assert_eq!(only_span(" 6m0s "), Some(360_000));
    }

    #[test]
    fn a_number_is_exact_up_to_the_last_u64() {
        assert_eq!(number("1.5005", 1_000), Some(1_501));
        assert_eq!(number("18446744073709551615", 1), Some(u64::MAX));
        assert_eq!(number("18446744073709551616", 1), None);
        assert_eq!(number("18446744073709551615", 1_000), None);
        for text in ["", ".", "-1", "+1", "1e3", "NaN", "inf", "1,5", "0x10", " 1"] {
            assert_eq!(number(text, 1_000), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}", unit in 1u64..=86_400_000) {
            let _ = (span(&text), only_span(&text), number(&text, unit));
        }

        #[test]
        fn what_is_written_is_read(seconds in 0u64..10_000_000, millis in 0u64..1_000) {
            let text = format!("{seconds}.{millis:03}");
            prop_assert_eq!(number(&text, 1_000), Some(seconds * 1_000 + millis));
            prop_assert_eq!(span(&format!("{text}s")), Some(seconds * 1_000 + millis));
        }
    }
}
