//! What a rule is, and what it looks at.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::CHAIN;
use crate::failure::said::Said;
use crate::failure::{Anomaly, Failure, Phase, Reason, TransportKind};

/// One rule's view of a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Opinion {
    pub(super) reason: Reason,
    pub(super) retryable: bool,
}

impl Opinion {
    /// The same request may pass later.
    pub(super) const fn retry(reason: Reason) -> Opinion {
        Opinion { reason, retryable: true }
    }

    /// The same request would fail the same way.
    pub(super) const fn forbid(reason: Reason) -> Opinion {
        Opinion { reason, retryable: false }
    }
}

/// A rule: what it knows, and where from.
pub(super) struct Rule {
    /// Stable for ever.
    pub(super) id: &'static str,
    /// One sentence for people.
    pub(super) why: &'static str,
    pub(super) test: Test,
}

/// How a rule finds its opinion.
pub(super) enum Test {
    /// By looking at fields.
    Look(fn(&Seen<'_>) -> Option<Opinion>),
    /// By the provider's names for its errors: codes, types, gRPC statuses, reasons; upper and lower case are the same.
    Names { at: fn(&Seen<'_>) -> bool, names: &'static [&'static str], then: Opinion },
    /// By what the messages say. Comes last, since prose is for people and changes without notice.
    ///
    /// A phrase is a list of fragments that must all be there. `\n` stands for the beginning of a message.
    Wording { at: fn(&Seen<'_>) -> bool, any: &'static [&'static [&'static str]], then: Opinion },
}

/// What the rules look at: a failure, what its texts say, and which known phrases are in them.
pub(super) struct Seen<'a> {
    pub(super) failure: &'a Failure,
    pub(super) said: Said,
    /// A status that a message quotes.
    pub(super) quoted_status: Option<u16>,
    speaks_of_network: bool,
    found: Found,
}

/// The fragments that were found.
type Found = [u64; 12];

impl<'a> Seen<'a> {
    pub(super) fn of(failure: &'a Failure) -> Seen<'a> {
        let said = Said::of(failure);
        let found = WORDS.find(&said.prose);
        let is_exception = has_client_text(failure);
        let quoted_status = super::gateway::quoted_status(&said.prose, is_exception);
        let speaks_of_network = is_exception && WORDS.speaks_of_network(&found);
        Seen { failure, said, quoted_status, speaks_of_network, found }
    }

    /// The response's status, where it says that the request failed.
    pub(super) fn status(&self) -> Option<u16> {
        (self.failure.phase == Phase::Response).then_some(self.failure.status).flatten()
    }

    /// The status says something about this request, and not that a server had a problem.
    pub(super) fn is_client_error(&self) -> bool {
        self.status().is_some_and(|status| {
            (400..500).contains(&status) && !matches!(status, 408 | 409 | 425 | 429 | 499)
        })
    }

    /// The status was good, but an error came all the same.
    pub(super) fn is_error_inside(&self) -> bool {
        self.failure.anomaly == Some(Anomaly::Error)
    }

    /// The status does not say what it is: there is none that does, or it is a gateway's for whatever went wrong
    /// behind it.
    pub(super) fn is_wrapped(&self) -> bool {
        self.status().is_none_or(|status| status >= 500)
    }

    /// True if the messages hold one of these words, in lower case.
    pub(super) fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.said.prose.contains(word))
    }

    /// Only the text of the HTTP client tells what happened, and it speaks of the network. An SDK's exception that
    /// repeats what the provider said is as good as the provider's message.
    pub(super) fn is_client_text(&self) -> bool {
        self.speaks_of_network && self.quoted_status.is_none()
    }

    /// All there is was raised by the HTTP client, or by an SDK.
    pub(super) fn is_exception(&self) -> bool {
        has_client_text(self.failure)
    }
}

fn has_client_text(failure: &Failure) -> bool {
    failure.transport.as_ref().is_some_and(|fault| fault.kind == TransportKind::Other)
}

/// The rules in their order, with their phrases by number.
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
        let of_network = |compiled: &&Compiled| compiled.rule.id.starts_with(super::transport::FAMILY);
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

/// For gates: at any status.
pub(super) fn anywhere(_: &Seen<'_>) -> bool {
    true
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
