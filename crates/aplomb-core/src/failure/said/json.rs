//! Reads JSON as it arrives in failures: whole, cut off, broken by a proxy, or written by Python.

use serde_json::{Map, Number, Value};

/// How deep the lenient reader follows. Deeper than any error; shallow enough for any stack.
const MAX_DEPTH: usize = 32;

/// Reads an object or an array; as far as it goes where it is cut off or broken. `None` for anything else.
pub(crate) fn read(text: &str) -> Option<Value> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    // The strict reader is the faster one, but it has nothing to show for a text that is cut off.
    if text.ends_with(['}', ']'])
        && let Ok(value) = serde_json::from_str(text)
    {
        return Some(value);
    }
    Some(Lenient { bytes: text.as_bytes(), at: 0 }.value(0))
}

/// Takes what it understands and steps over the rest. Every byte is looked at once.
struct Lenient<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Lenient<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blank(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == b',') {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        self.skip_blank();
        match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                self.at = self.bytes.len();
                Value::Null
            }
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(quote @ (b'"' | b'\'')) => Value::String(self.string(quote)),
            Some(_) => self.word(),
            None => Value::Null,
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut fields = Map::new();
        self.at += 1;
        loop {
            self.skip_blank();
            match self.peek() {
                None => break,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                Some(quote @ (b'"' | b'\'')) => {
                    let key = self.string(quote);
                    self.skip_blank();
                    if self.peek() == Some(b':') {
                        self.at += 1;
                        let value = self.value(depth + 1);
                        fields.insert(key, value);
                    }
                }
                Some(_) => self.at += 1,
            }
        }
        Value::Object(fields)
    }

    fn array(&mut self, depth: usize) -> Value {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.skip_blank();
            match self.peek() {
                None => break,
                Some(b']') => {
                    self.at += 1;
                    break;
                }
                Some(b'}' | b':') => self.at += 1,
                Some(_) => items.push(self.value(depth + 1)),
            }
        }
        Value::Array(items)
    }

    fn string(&mut self, quote: u8) -> String {
        let mut bytes = Vec::new();
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => self.escape(&mut bytes),
                _ if byte == quote => break,
                _ => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn escape(&mut self, out: &mut Vec<u8>) {
        let Some(byte) = self.peek() else { return };
        self.at += 1;
        match byte {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' | b'f' => out.push(b' '),
            b'u' => {
                let first = self.four_digits();
                let letter = match first {
                    Some(high @ 0xd800..0xdc00) if self.bytes.get(self.at..self.at + 2) == Some(b"\\u") => {
                        self.at += 2;
                        let low = self.four_digits().unwrap_or_default();
                        char::from_u32(
                            0x1_0000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff),
                        )
                    }
                    Some(code) => char::from_u32(code),
                    None => None,
                };
                let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.at..self.at + 4)?;
        let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        self.at += 4;
        Some(code)
    }

    fn word(&mut self) -> Value {
        let begin = self.at;
        while self.peek().is_some_and(|byte| !byte.is_ascii_whitespace() && !b",:}]\"'".contains(&byte)) {
            self.at += 1;
        }
        // What is no word at all is stepped over, so that every call moves on.
        self.at = self.at.max(begin + 1);
        let word = self.bytes.get(begin..self.at).and_then(|word| std::str::from_utf8(word).ok());
        match word.unwrap_or_default() {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            word => word.parse::<Number>().map_or(Value::Null, Value::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn whole_json_is_read_as_it_is() {
        assert_eq!(read(" {\"a\": [1, null]} \n"), Some(json!({"a": [1, null]})));
        assert_eq!(read("<html>"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn cut_off_json_is_read_as_far_as_it_goes() {
        let whole = r#"{"error":{"code":429,"message":"slow \"down\" \u00e9\ud83d\ude00"}}"#;
        let cut = whole.strip_suffix("\"}}").unwrap();
        assert_eq!(read(cut), read(whole));
        assert_eq!(read(r#"[{"error":{"code":4"#), Some(json!([{"error": {"code": 4}}])));
        assert_eq!(read(r#"{"error"#), Some(json!({})));
    }

    #[test]
    fn a_stray_comma_and_pythons_way_of_writing_are_read() {
        assert_eq!(
            read(r#"{"a": "b" ,,   "c": {"d": "12s"} , }"#),
            Some(json!({"a": "b", "c": {"d": "12s"}}))
        );
        assert_eq!(
            read("{'error': {'code': None, 'ok': False, 'message': \"it's\"}}"),
            Some(json!({"error": {"code": null, "ok": false, "message": "it's"}}))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[{][\\[\\]{}:,\"'\\\\ua-z0-9 \\p{L}]{0,200}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert!(read(&"[".repeat(100_000)).is_some());
        assert!(read(&r#"{"a":"#.repeat(100_000)).is_some());
    }
}
