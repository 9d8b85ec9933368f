//! The rules in their order, and the one pass over a failure's texts that all of them share.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::rule::{Found, Opinion, Rule, Seen, Test};
use super::{CHAIN, transport};
use crate::failure::Failure;
use crate::failure::said::Said;

/// Looks at a failure once, for every rule.
pub(super) fn look(failure: &Failure) -> Seen<'_> {
    let said = Said::of(failure);
    let found = WORDS.find(&said.prose);
    let mut seen = Seen { failure, said, quoted_status: None, speaks_of_network: false, found };
    let is_exception = seen.is_exception();
    seen.quoted_status = quoted_status(&seen.said.prose, is_exception);
    seen.speaks_of_network = is_exception && WORDS.speaks_of_network(&seen.found);
    seen
}

/// What stands before a quoted status. Bare numbers are none: they count tokens, bytes and milliseconds.
const BEFORE_STATUS: [&str; 14] = [
    "error code: ",
    "status code: ",
    "status code ",
    "status_code: ",
    "status_code=",
    "statuscode: ",
    "got status: ",
    "status: ",
    "http status ",
    "http ",
    "http/1.1 ",
    "returned ",
    "[",
    "\n",
];

/// The status that a message quotes. An HTTP client's exception names its type first: `ServiceUnavailable: 503 The model …`.
pub(super) fn quoted_status(prose: &str, by_exception: bool) -> Option<u16> {
    let after_type = by_exception.then_some(": ");
    BEFORE_STATUS.into_iter().chain(after_type).find_map(|before| {
        prose.match_indices(before).find_map(|(at, _)| {
            let rest = prose.get(at + before.len()..)?;
            let digits = rest.get(..3)?;
            let ends =
                rest.get(3..)?.chars().next().is_none_or(|next| !next.is_ascii_alphanumeric() && next != '.');
            let ends = ends && (before != ": " || rest.get(3..4) == Some(" "));
            digits.parse().ok().filter(|status| ends && (400..600).contains(status))
        })
    })
}

/// A rule, with its phrases by number.
struct Compiled {
    rule: &'static Rule,
    phrases: Vec<Vec<u16>>,
}

/// Every known fragment, searched for in one pass.
struct Words {
    rules: Vec<Compiled>,
    /// `None` only if the fragments cannot be compiled, which a test rules out.
    searcher: Option<AhoCorasick>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let mut fragments: Vec<&'static str> = Vec::new();
    let mut number = |fragment: &'static str| {
        let known = fragments.iter().position(|known| *known == fragment);
        let at = known.unwrap_or_else(|| {
            fragments.push(fragment);
            fragments.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    };
    let rules = CHAIN.into_iter().flatten().map(|rule| {
        let phrases = match &rule.test {
            Test::Wording { any, .. } => {
                any.iter().map(|phrase| phrase.iter().map(|fragment| number(fragment)).collect()).collect()
            }
            _ => Vec::new(),
        };
        Compiled { rule, phrases }
    });
    let rules = rules.collect();
    let searcher = AhoCorasick::new(&fragments).ok();
    Words { rules, searcher }
});

impl Words {
    fn find(&self, prose: &str) -> Found {
        let mut found = Found::default();
        let Some(searcher) = &self.searcher else { return found };
        for hit in searcher.find_overlapping_iter(prose) {
            let at = hit.pattern().as_usize();
            if let Some(bits) = found.get_mut(at / 64) {
                *bits |= 1 << (at % 64);
            }
        }
        found
    }

    /// Whether one of the network's own phrases was found.
    fn speaks_of_network(&self, found: &Found) -> bool {
        let of_network = |compiled: &&Compiled| compiled.rule.id.starts_with(transport::FAMILY);
        self.rules.iter().filter(of_network).any(|compiled| compiled.is_found_in(found))
    }
}

impl Compiled {
    fn is_found_in(&self, found: &Found) -> bool {
        let is_found = |fragment: &u16| {
            let at = usize::from(*fragment);
            found.get(at / 64).is_some_and(|bits| bits & (1 << (at % 64)) != 0)
        };
        self.phrases.iter().any(|phrase| phrase.iter().all(is_found))
    }

    fn opinion(&self, seen: &Seen<'_>) -> Option<Opinion> {
        match &self.rule.test {
            Test::Look(look) => look(seen),
            Test::Names { at, names, then } => (seen.said.is_named(names) && at(seen)).then_some(*then),
            Test::Wording { at, then, .. } => (self.is_found_in(&seen.found) && at(seen)).then_some(*then),
        }
    }
}

/// What the chain makes of it: the last rule that has an opinion, and the opinion.
pub(super) fn last_opinion(seen: &Seen<'_>) -> Option<(&'static Rule, Opinion)> {
    WORDS.rules.iter().rev().find_map(|compiled| Some((compiled.rule, compiled.opinion(seen)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fragment_has_its_bit() {
        assert!(
            WORDS
                .searcher
                .as_ref()
                .is_some_and(|searcher| searcher.patterns_len() <= Found::default().len() * 64)
        );
    }

    #[test]
    fn ids_are_unique_and_reasons_are_sentences() {
        let mut ids: Vec<_> = WORDS.rules.iter().map(|compiled| compiled.rule.id).collect();
        for Compiled { rule, .. } in &WORDS.rules {
            assert!(rule.why.ends_with('.') && rule.why.len() <= 160, "{}", rule.id);
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), WORDS.rules.len());
    }

    #[test]
    fn fragments_are_lower_case_and_phrases_hold_some() {
        for Compiled { rule, .. } in &WORDS.rules {
            if let Test::Wording { any, .. } = &rule.test {
                for phrase in *any {
                    assert!(!phrase.is_empty(), "{}", rule.id);
                    for fragment in *phrase {
                        // Shorter ones say too little to be anchored.
                        assert!(fragment.chars().count() >= 4 || !fragment.is_ascii(), "{fragment:?}");
                        assert_eq!(fragment.to_lowercase(), *fragment);
                    }
                }
            }
        }
    }
}
