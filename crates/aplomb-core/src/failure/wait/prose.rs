//! Waits in the words of a message.

use super::{Stated, duration, instant};

/// The words before a span of time.
///
/// Sources: OpenAI's and Groq's "Please try again in 1m26.4s", Azure's "Please retry after 27 seconds", Gemini's "Please
/// retry in 47.9s", Code Assist's "Your quota will reset after 12s", Codex's and Z.AI's "Resets in …".
const BEFORE_SPAN: [&str; 12] = [
    "try again in ",
    "try again after ",
    "retry in ",
    "retry after ",
    "retry again in ",
    "retrying in ",
    "reset after ",
    "reset in ",
    "resets in ",
    "available in ",
    "please wait ",
    "wait for ",
];

/// The words before a point in time.
const BEFORE_MOMENT: [&str; 5] =
    ["resets at ", "reset at ", "try again at ", "retry after ", "available at "];

/// Between those words and the span.
const VAGUE: [&str; 3] = ["about ", "approximately ", "another "];

/// The first wait that the messages, in lower case, state. A number without a unit is none: it may count anything.
pub(super) fn stated(prose: &str) -> Option<Stated> {
    let span = after_any(prose, &BEFORE_SPAN, |rest| {
        let rest = VAGUE.iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        duration::span(rest).map(Stated::For)
    });
    span.or_else(|| {
        after_any(prose, &BEFORE_MOMENT, |rest| {
            let word = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ')', ';']);
            instant::rfc3339(&word.to_ascii_uppercase()).map(Stated::At)
        })
    })
}

/// What the text after one of these words gives, the first few times that it is there.
fn after_any(prose: &str, words: &[&str], read: impl Fn(&str) -> Option<Stated>) -> Option<Stated> {
    words.iter().find_map(|words| {
        let places = prose.match_indices(words).take(4);
        places.filter_map(|(at, found)| prose.get(at + found.len()..)).find_map(&read)
    })
}
