//! Cuts a text into the pieces that a stream sends. Knows nothing of events or protocols.

/// Cuts `text` into words, each with the white space before it, as the tokens of most models are cut. White
/// space at the end is a piece of its own. The pieces in order are exactly the text; an empty text has none.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut in_word = true;
    for character in text.chars() {
        let begins_piece = character.is_whitespace() && in_word;
        in_word = !character.is_whitespace();
        match pieces.last_mut() {
            Some(piece) if !begins_piece => piece.push(character),
            _ => pieces.push(character.into()),
        }
    }
    pieces
}

/// Cuts `text` into pieces of `size` characters, the last possibly shorter. A size of 0 counts as 1.
pub(super) fn every(size: usize, text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_the_space_before_them() {
        assert_eq!(words("Let me think"), ["Let", " me", " think"]);
    }

    #[test]
    fn odd_white_space_is_neither_lost_nor_doubled() {
        assert_eq!(words("  a\n\n b  "), ["  a", "\n\n b", "  "]);
        assert_eq!(words(" "), [" "]);
        assert_eq!(words(""), [""; 0]);
        for text in ["", " ", "a", " a", "a ", "a  b\tc\n", "ä 日本 语"] {
            assert_eq!(words(text).concat(), text);
        }
    }

    #[test]
    fn sizes_count_characters_not_bytes() {
        assert_eq!(every(2, "äöüß!"), ["äö", "üß", "!"]);
        assert_eq!(every(9, "abc"), ["abc"]);
        assert_eq!(every(1, ""), [""; 0]);
    }
}
