//! Keeps credentials out of everything that people and files see.

/// What a removed credential leaves behind.
pub const MARK: &str = "[redacted]";

/// Text with every credential that can be told by its form replaced by [`MARK`]: keys with a known prefix, bearer
/// tokens, and the query of a URL, where some providers take their key.
pub fn text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut after_bearer = false;
    for word in text.split_inclusive(is_boundary) {
        let (core, boundary) = match word.char_indices().next_back() {
            Some((at, last)) if is_boundary(last) => word.split_at(at),
            _ => (word, ""),
        };
        if (after_bearer && !core.is_empty()) || is_key(core) {
            clean.push_str(MARK);
        } else if let Some((before, _)) = core.split_once('?').filter(|(url, _)| url.contains("://")) {
            clean.push_str(before);
            clean.push('?');
            clean.push_str(MARK);
        } else {
            clean.push_str(core);
        }
        clean.push_str(boundary);
        after_bearer = core.eq_ignore_ascii_case("bearer") || (after_bearer && core.is_empty());
    }
    clean
}

fn is_boundary(character: char) -> bool {
    character.is_whitespace() || "\"'`,;<>(){}[]".contains(character)
}

/// The forms of provider keys. Shorter words with such a prefix are examples or placeholders, such as `sk-...`.
fn is_key(word: &str) -> bool {
    const PREFIXES: [&str; 8] = ["sk-", "sk_", "AIza", "gsk_", "xai-", "hf_", "ghp_", "AKIA"];
    let word = word.rsplit(['=', ':']).next().unwrap_or(word).trim_end_matches('.');
    word.len() >= 16 && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn keys_bearers_and_url_queries_are_removed_and_prose_is_not() {
        for (dirty, clean) in [
            (
                "Incorrect API key provided: sk-proj-abcdefghijklmnop.",
                "Incorrect API key provided: [redacted]",
            ),
            ("Authorization: Bearer abc.def, retry", "Authorization: Bearer [redacted], retry"),
            (
                "error for url (https://host/v1?key=AIzaSyA) at",
                "error for url (https://host/v1?[redacted]) at",
            ),
            (r#"{"key":"gsk_0123456789abcdef"}"#, r#"{"key":"[redacted]"}"#),
            ("what is a sk-... key? ask", "what is a sk-... key? ask"),
        ] {
            assert_eq!(text(dirty), clean);
        }
    }
}
