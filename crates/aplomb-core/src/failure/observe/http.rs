//! A response as people paste it: what `curl -i` prints, or a log holds.

use std::collections::BTreeMap;

use super::Observation;

/// Reads the head and takes what follows it as the body. `None` where the text does not begin with a status line.
///
/// Lines may end in CR LF or in LF alone. What came before the last head (`100 Continue`, a proxy's `200 Connection
/// established`) is passed over. Of a header that is there twice, the last one counts.
///
/// Source: RFC 9112, §2.2 (line ends), §4 (status line), §5 (header fields).
pub(super) fn read(text: &str) -> Option<Observation> {
    let mut rest = text.trim_start();
    loop {
        let (status, headers, body) = one(rest)?;
        if (status < 300 && one(body).is_some()) || (100..200).contains(&status) {
            rest = body;
            continue;
        }
        let kind = headers.get("content-type").map(|kind| kind.trim_start().to_ascii_lowercase());
        let is_stream = status < 300 && kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let text = Some(body.to_owned());
        let (body, sse_event) = if is_stream { (None, text) } else { (text, None) };
        return Some(Observation {
            status: Some(status),
            headers: Some(headers),
            body,
            sse_event,
            ..Observation::default()
        });
    }
}

/// One head, and what follows it.
fn one(text: &str) -> Option<(u16, BTreeMap<String, String>, &str)> {
    let (line, mut rest) = line(text);
    let (version, after) = line.split_once(' ')?;
    version.strip_prefix("HTTP/")?;
    let status = after.split(' ').next()?.parse().ok().filter(|status| (100..1000).contains(status))?;
    let mut headers = BTreeMap::new();
    while !rest.is_empty() {
        let (head, after) = self::line(rest);
        rest = after;
        if head.is_empty() {
            break;
        }
        if let Some((name, value)) = head.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Some((status, headers, rest))
}

/// The first line without its end, and what follows it.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.strip_suffix('\r').unwrap_or(line), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Anomaly, Phase};

    #[test]
    fn lines_may_end_in_crlf_or_lf() {
        for end in ["\r\n", "\n"] {
            let lines = ["HTTP/1.1 429 Too Many Requests", "Retry-After:  20 ", "", "a\r\n\r\nb"];
            let seen = read(&lines.join(end)).unwrap();
            assert_eq!((seen.status, seen.body.as_deref()), (Some(429), Some("a\r\n\r\nb")), "{end:?}");
            assert_eq!(seen.headers.unwrap().get("retry-after").map(String::as_str), Some("20"));
        }
    }

    #[test]
    fn a_status_line_needs_no_reason_and_a_response_no_body() {
        for text in ["HTTP/2 503", "HTTP/1.1 503 \r\n\r\n", "\n\nHTTP/3 503\nserver: x"] {
            assert_eq!(read(text).unwrap().status, Some(503), "{text:?}");
        }
    }

    #[test]
    fn what_comes_before_the_last_head_is_passed_over() {
        let text =
            "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/2 401\r\n\r\n{}";
        let seen = read(text).unwrap();
        assert_eq!((seen.status, seen.body.as_deref()), (Some(401), Some("{}")));
    }

    #[test]
    fn what_is_no_response_is_none() {
        for text in
            ["", "{}", "HTTP", "HTTP/1.1", "HTTP/1.1 abc", "HTTP/1.1 99999 x", "HTTP/1.1 100 Continue\n\n"]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_stream_that_was_good_until_it_broke_is_read_as_one() {
        let text =
            "HTTP/1.1 200 OK\ncontent-type: text/event-stream; charset=utf-8\n\nevent: error\ndata: {}\n\n";
        let failure = read(text).unwrap().into_failure();
        assert_eq!((failure.phase, failure.anomaly), (Phase::MidStream, Some(Anomaly::Error)));
    }
}
