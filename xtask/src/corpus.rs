//! Adds a failure that somebody met to the corpus, without its credentials, and with a label.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use aplomb_core::failure::{Observation, Reason, Verdict, classify, keep_header};
use aplomb_core::redact::{DEFAULT_KEYS, Redactor};
use serde_json::{Value, json};

pub(crate) const USAGE: &str = "corpus add [FILE] --id ID --source URL [--provider NAME] [--wire WIRE] [--reason REASON] \
    [--code CODE] [--retryable true|false] [--retry-after-ms N|null] [--why TEXT]";

/// The fields of a line that hold what was said.
const TEXTS: [&str; 3] = ["body", "sse_event", "exception"];

/// Reads a failure (a response as `curl -i` prints it, or JSON with the corpus's fields) from a file or standard input,
/// and appends its line to `more.jsonl`.
pub(crate) fn add(arguments: &[&str]) -> Result<String, String> {
    let options = Options::read(arguments)?;
    let text = match options.file {
        Some(file) if file != "-" => {
            fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?
        }
        _ => io::read_to_string(io::stdin().lock().by_ref())
            .map_err(|error| format!("cannot read standard input: {error}"))?,
    };
    let [dev, more] = ["dev.jsonl", "more.jsonl"].map(|name| folder().join(name));
    let lines = |file: &Path| {
        fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
    };
    let (dev, known) = (lines(&dev)?, lines(&more)?);
    let (line, verdict) = line_of(&text, &options, &format!("{dev}\n{known}"))?;
    // An editor may have left the last line without its end.
    let start = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
    let appended =
        fs::File::options().append(true).open(&more).and_then(|mut file| writeln!(file, "{start}{line}"));
    appended.map_err(|error| format!("cannot write to {}: {error}", more.display()))?;
    let judged = format!("{} {} by {}", verdict.reason, verdict.code(), verdict.rule);
    Ok(format!(
        "{line}\n\nadded to more.jsonl; today's verdict is {judged}\n\
        read it: is every name, address and id in it one that may be public, and is the label what a careful engineer would say?"
    ))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/aplomb-core/tests/corpus")
}

#[derive(Default)]
struct Options<'a> {
    file: Option<&'a str>,
    id: &'a str,
    source: &'a str,
    why: &'a str,
    provider: Option<&'a str>,
    wire: Option<&'a str>,
    reason: Option<Reason>,
    code: Option<&'a str>,
    retryable: Option<bool>,
    retry_after_ms: Option<Option<u64>>,
}

impl<'a> Options<'a> {
    fn read(arguments: &[&'a str]) -> Result<Options<'a>, String> {
        let mut options = Options::default();
        let mut arguments = arguments.iter().copied();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with("--") {
                options.file = Some(argument);
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} has no value"))?;
            let wrong = |expected: &str| format!("{argument} is {value:?}; {expected}");
            match argument {
                "--id" => options.id = value,
                "--source" => options.source = value,
                "--why" => options.why = value,
                "--provider" => options.provider = Some(value),
                "--wire" => options.wire = Some(value),
                "--code" => options.code = Some(value),
                "--reason" => {
                    let reason = Reason::ALL.iter().find(|reason| reason.as_str() == value);
                    let names =
                        || Reason::ALL.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", ");
                    options.reason = Some(*reason.ok_or_else(|| wrong(&format!("it can be: {}", names())))?);
                }
                "--retryable" => {
                    let value = value.parse().map_err(|_| wrong("it can be: true, false"))?;
                    options.retryable = Some(value);
                }
                "--retry-after-ms" => {
                    let value =
                        serde_json::from_str(value).map_err(|_| wrong("it can be a number, or null"))?;
                    options.retry_after_ms = Some(value);
                }
                _ => return Err(format!("{argument} is unknown; usage: xtask {USAGE}")),
            }
        }
        if options.id.is_empty() || options.source.is_empty() {
            return Err(format!("a line needs an --id and a --source; usage: xtask {USAGE}"));
        }
        Ok(options)
    }

    /// Today's verdict, except where the options say otherwise.
    fn label(&self, verdict: &Verdict) -> Result<Value, String> {
        let reason = self.reason.unwrap_or(verdict.reason);
        let retryable = self.retryable.unwrap_or(verdict.retryable);
        let is_todays = (reason, retryable) == (verdict.reason, verdict.retryable);
        let code = if is_todays { verdict.code() } else { reason.code(retryable) };
        let code = self.code.unwrap_or(code.as_str());
        if ["llm.connection", "llm.rate_limit"].contains(&code) != retryable {
            return Err(format!(
                "{code} and retryable {retryable} do not go together; see the corpus's README.md"
            ));
        }
        let stated = retryable.then_some(verdict.wait).flatten().map(|wait| wait.delay_ms);
        let retry_after_ms = self.retry_after_ms.unwrap_or(stated);
        Ok(json!({"reason": reason, "code": code, "retryable": retryable, "retry_after_ms": retry_after_ms}))
    }
}

/// The line for a failure, and today's verdict of it. `known` are the corpus's lines.
fn line_of(text: &str, options: &Options<'_>, known: &str) -> Result<(String, Verdict), String> {
    let mut seen = match Observation::from_http(text) {
        Some(seen) => seen,
        None => serde_json::from_str(text).map_err(|error| {
            format!("this is neither a response (HTTP/1.1 429 …) nor a line of the corpus: {error}")
        })?,
    };
    if seen.is_blank() {
        return Err("the failure has none of phase, status, body, sse_event, exception".to_owned());
    }
    seen.provider = options.provider.map(str::to_owned).or(seen.provider);
    seen.wire = options.wire.map(str::to_owned).or(seen.wire);
    seen.headers.get_or_insert_default().retain(|name, _| keep_header(&name.to_ascii_lowercase()));
    // As it is read, so that the line says it.
    seen.phase = Some(seen.clone().into_failure().phase);
    let as_it_was = classify(&seen.clone().into_failure());

    let redactor = Redactor::new(DEFAULT_KEYS.map(str::to_owned), []);
    let texts = [&mut seen.body, &mut seen.sse_event, &mut seen.exception].into_iter().flatten();
    for text in texts.chain(seen.headers.iter_mut().flat_map(|headers| headers.values_mut())) {
        *text = redactor.string(text);
    }
    let verdict = classify(&seen.clone().into_failure());
    if verdict != as_it_was {
        return Err(format!(
            "without its credentials it is another failure ({} by {}, not {} by {}): replace them by fake ones by hand",
            verdict.reason, verdict.rule, as_it_was.reason, as_it_was.rule
        ));
    }
    let expected = options.label(&verdict)?;
    let seen = serde_json::to_value(&seen).map_err(|error| error.to_string())?;
    is_new(options.id, &seen, known)?;
    let mut fields = vec![("id", json!(options.id))];
    for name in ["provider", "wire", "phase", "status", "headers", "body", "sse_event", "exception", "now"] {
        let field = seen.get(name).cloned().unwrap_or_default();
        if name != "now" || !field.is_null() {
            fields.push((name, field));
        }
    }
    fields.extend([("expected", expected), ("why", json!(options.why)), ("source", json!(options.source))]);
    fields.push(("evidence", json!("verbatim")));
    // In the order of the other lines; a map would sort them.
    let fields: Vec<_> = fields.iter().map(|(name, field)| format!("{}: {field}", json!(name))).collect();
    Ok((format!("{{{}}}", fields.join(", ")), verdict))
}

/// Refuses an id that is taken, and a failure of the same status whose texts are those of another one.
fn is_new(id: &str, seen: &Value, known: &str) -> Result<(), String> {
    let said = |line: &Value| {
        let words = |field: &&str| {
            let text = line.get(*field).and_then(Value::as_str).unwrap_or_default();
            text.split_whitespace().collect::<String>()
        };
        let texts: Vec<_> = TEXTS.iter().map(words).collect();
        texts.iter().any(|text| !text.is_empty()).then_some((texts, line.get("status").cloned()))
    };
    let new = said(seen);
    for line in known.lines().filter(|line| !line.trim().is_empty()) {
        let line: Value =
            serde_json::from_str(line).map_err(|error| format!("a line of the corpus: {error}"))?;
        let known_id = line.get("id").and_then(Value::as_str).unwrap_or_default();
        if known_id == id {
            return Err(format!("there is a line {id} already"));
        }
        if new.is_some() && said(&line) == new {
            return Err(format!("the line {known_id} says the same"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "HTTP/1.1 429 Too Many Requests\r\nSet-Cookie: session=hunter2000\r\nRetry-After: 20\r\n\r\n\
        {\"error\": {\"code\": \"insufficient_quota\", \"message\": \"key sk-proj-0123456789abcdef\"}}";

    const NAMED: [&str; 4] = ["--id", "new", "--source", "https://example.org/1"];

    fn line(text: &str, more: &[&str], known: &str) -> Result<Value, String> {
        let arguments = [&NAMED[..], more].concat();
        let (line, _) = line_of(text, &Options::read(&arguments)?, known)?;
        Ok(serde_json::from_str(&line).unwrap())
    }

    #[test]
    fn a_response_becomes_a_line_without_credentials_and_with_todays_verdict() {
        let line = line(QUOTA, &["--provider", "openai", "--wire", "openai-chat"], "").unwrap();
        assert_eq!(
            line,
            json!({
                "id": "new", "provider": "openai", "wire": "openai-chat", "phase": "response", "status": 429,
                "headers": {"retry-after": "20"},
                "body": r#"{"error": {"code": "insufficient_quota", "message": "key [redacted]"}}"#,
                "sse_event": null, "exception": null,
                "expected": {"reason": "quota_exhausted", "code": "llm.response", "retryable": false, "retry_after_ms": null},
                "why": "", "source": "https://example.org/1", "evidence": "verbatim",
            })
        );
    }

    #[test]
    fn a_careful_engineer_may_know_better() {
        let options =
            ["--reason", "rate_limit", "--retryable", "true", "--why", "a burst", "--retry-after-ms", "7"];
        let line = line(QUOTA, &options, "").unwrap();
        let expected =
            json!({"reason": "rate_limit", "code": "llm.rate_limit", "retryable": true, "retry_after_ms": 7});
        assert_eq!((&line["expected"], &line["why"]), (&expected, &json!("a burst")));
    }

    #[test]
    fn what_is_there_already_or_contradicts_itself_is_refused() {
        let known = line(QUOTA, &[], "").unwrap().to_string();
        assert_eq!(line("HTTP/1.1 500\n\n", &[], &known).unwrap_err(), "there is a line new already");
        let again = QUOTA.replace("\": ", "\":   ");
        let known = known.replace("\"new\"", "\"old\"");
        assert_eq!(line(&again, &[], &known).unwrap_err(), "the line old says the same");
        assert!(line(QUOTA, &["--code", "llm.connection"], "").unwrap_err().contains("do not go together"));
        assert!(line("{}", &[], "").unwrap_err().contains("has none of"));
        assert!(line("hello", &[], "").unwrap_err().contains("neither a response"));
        assert!(Options::read(&["--id", "x"]).is_err());
        assert!(Options::read(&[&NAMED[..], &["--reason", "bored"]].concat()).is_err());
    }
}
