//! Near matches: what somebody may have meant who wrote a name that does not exist.
//!
//! One rule for agents, plugins, tools, config keys, codes and values. Names are compared without regard to case. Near
//! is a name of which the other is a beginning, where three letters or more agree; or one that takes few edits: at most
//! one for every three characters of the longer name. An edit is a character more, fewer, or other, or two neighbours
//! swapped (optimal string alignment; Damerau, 1964): what fingers do. A farther name is not offered: a silly guess is
//! worse than none.

/// The most names that are offered.
const MOST: usize = 3;

/// How many letters a beginning must have to count.
const BEGINNING: usize = 3;

/// The candidates that are near to `name`, the nearest first, at most three.
///
/// ```
/// use aplomb_core::near::near;
/// assert_eq!(near("tool.rate_limt", ["tool.rate_limit", "tool.timeout"]), ["tool.rate_limit"]);
/// assert!(near("banana", ["assistant", "researcher"]).is_empty());
/// ```
pub fn near<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut found: Vec<_> = candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(&name, &candidate.to_lowercase())?, candidate)))
        .collect();
    // Equal ones in the order of their names, so that the same mistake always gets the same answer.
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// The question to put to whoever wrote `name`; `None` where nothing is near.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let quoted: Vec<_> =
        near(name, candidates).into_iter().map(|candidate| format!("{candidate:?}")).collect();
    let (last, others) = quoted.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// The edits from one name to the other, where they are near.
fn distance(one: &str, other: &str) -> Option<usize> {
    let (length, other_length) = (one.chars().count(), other.chars().count());
    let edits = strsim::osa_distance(one, other);
    let is_beginning =
        length.min(other_length) >= BEGINNING && (one.starts_with(other) || other.starts_with(one));
    (is_beginning || edits <= length.max(other_length) / 3).then_some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_swaps_beginnings_and_case_are_near() {
        for (wrong, right) in [
            ("asistant", "assistant"),
            ("assistnat", "assistant"),
            ("ASSISTANT", "assistant"),
            ("api_ky_env", "api_key_env"),
            ("max_atempts", "max_attempts"),
            ("calculator", "calc"),
            ("curr", "current_time"),
            ("Größe", "größe"),
            ("gröse", "größe"),
            ("modle", "model"),
        ] {
            assert_eq!(near(wrong, [right]), [right], "{wrong}");
        }
    }

    #[test]
    fn what_only_looks_alike_is_not_near() {
        for (wrong, other) in [
            // One edit of two, two of four: too much of a short word.
            ("id", "it"),
            ("calc", "cats"),
            ("a", "assistant"),
            ("banana", "assistant"),
            ("llm", "tool"),
            ("read_file", "write_file"),
            ("", "assistant"),
        ] {
            assert!(near(wrong, [other]).is_empty(), "{wrong}");
        }
    }

    #[test]
    fn at_most_three_are_offered_and_the_nearest_comes_first() {
        let candidates = ["model_d", "model_c", "models", "model_b", "model"];
        assert_eq!(near("modle", candidates), ["model", "models"]);
        assert_eq!(near("model", candidates), ["model", "models", "model_b"]);
        assert_eq!(did_you_mean("modle", candidates).unwrap(), r#"did you mean "model" or "models"?"#);
        assert_eq!(did_you_mean("xyz", candidates), None);
    }
}
