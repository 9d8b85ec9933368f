//! `aplomb classify`: what a failure is, by which rule, and what Aplomb would do about it. Nothing is sent.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use aplomb::decide::schedule::{EntryPoint, Schedule, Setting, play};
use aplomb::decide::{Layer, Policy};
use aplomb::failure::classify::explain;
use aplomb::failure::{Observation, Verdict, classify as judge};
use aplomb::redact::{DEFAULT_KEYS, Redactor};
use aplomb::{Error, codes, for_people};
use serde_json::{Value, json};

use crate::args::{ClassifyArguments, ReportFormat};
use crate::output::{Lines, for_terminal, talk};
use crate::report::{self, Report};
use crate::{exit, render};

/// The longest line that is read of a stream of failures, in bytes. Far more than any failure says.
const LINE_LIMIT: u64 = 16 * 1024 * 1024;

const HINT: &str = "give a response (HTTP/1.1 429 …, headers, an empty line, the body), a line of the corpus, or --status \
    with --header and --body-file";

pub(crate) fn classify(arguments: &ClassifyArguments) -> u8 {
    if !arguments.jsonl {
        return report::give_as(arguments.format, explain_one(arguments));
    }
    let answered = open(arguments.file.as_deref()).and_then(|input| answer_each(BufReader::new(input)));
    answered.unwrap_or_else(|error| {
        talk(format_args!("{}", render::failure(&error)));
        exit::of(&error)
    })
}

// ---- One failure, for people.

fn explain_one(arguments: &ClassifyArguments) -> Result<Report, Error> {
    let (id, observation) = observe(arguments)?;
    let mut failure = observation.into_failure();
    let verdict = judge(&failure);
    let by = |entry| play(&failure, &Policy::default(), entry, Setting::default(), 0);
    let (run, exec) = (by(EntryPoint::Run), by(EntryPoint::Exec));
    failure.seal([]);
    let seen = redactor().string(&failure.to_string());
    let hint = verdict.reason.hint().or(verdict.code().hint());
    Ok(match arguments.format {
        ReportFormat::Text => Report::data(in_words(&verdict, &seen, &run, &exec, hint)),
        ReportFormat::Json => {
            let mut told = line(id, &verdict);
            let more = json!({
                "rule_says": explain(&verdict.rule),
                "wait_source": verdict.wait.map(|wait| wait.source),
                "seen": seen,
                "hint": hint,
                "run": run,
                "exec": exec,
            });
            if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
                told.extend(more);
            }
            Report::json(&told)
        }
    })
}

fn in_words(verdict: &Verdict, seen: &str, run: &Schedule, exec: &Schedule, hint: Option<&str>) -> String {
    let retryable = if verdict.retryable { "retryable" } else { "not retryable" };
    let mut text = format!("{} ({}), {retryable}\n", verdict.reason, verdict.code());
    let mut tell = |label: &str, value: &str| {
        let _never_fails = writeln!(text, "  {label:5} {}", for_terminal(value));
    };
    tell("seen:", if seen.is_empty() { "nothing that says what went wrong" } else { seen });
    tell("rule:", &format!("{}: {}", verdict.rule, explain(&verdict.rule).unwrap_or_default()));
    if let Some(wait) = verdict.wait {
        let delay = for_people(wait.delay_ms);
        tell("wait:", &format!("the provider asks for {delay} ({})", wait.source.as_str()));
    }
    tell("run:", &plan(run));
    tell("exec:", &plan(exec));
    if let Some(hint) = hint {
        tell("hint:", hint);
    }
    text
}

/// What a call comes to that meets this failure every time, under the default settings.
fn plan(schedule: &Schedule) -> String {
    let later = || schedule.attempts.iter().skip(1);
    let shortened = later().filter(|planned| planned.layer == Layer::Compaction).count();
    let waits: Vec<_> =
        later().filter(|planned| planned.delay_ms > 0).map(|planned| for_people(planned.delay_ms)).collect();
    let s = if schedule.requests == 1 { "" } else { "s" };
    let mut text = format!("{} request{s}", schedule.requests);
    if shortened > 0 {
        let _never_fails = write!(text, ", {shortened} of them with a shorter conversation");
    }
    if !waits.is_empty() {
        let _never_fails = write!(text, "; waits, before jitter: {}", waits.join(", "));
    }
    let _never_fails = write!(text, "; ended by {}", schedule.rule);
    text
}

/// The failure that the arguments hold or point to, and its name where it has one.
fn observe(arguments: &ClassifyArguments) -> Result<(Value, Observation), Error> {
    let ClassifyArguments { file, status, header, body_file, exception, provider, wire, phase, .. } =
        arguments;
    let in_parts = status.is_some() || !header.is_empty() || body_file.is_some() || exception.is_some();
    let (id, mut observation) = if in_parts {
        let mut observation = Observation::default();
        observation.status = *status;
        observation.headers = Some(header.iter().map(|line| one_header(line)).collect::<Result<_, _>>()?);
        observation.body = body_file.as_deref().map(|file| read(Some(file))).transpose()?;
        observation.exception = exception.clone();
        (Value::Null, observation)
    } else {
        let text = read(file.as_deref())?;
        match Observation::from_http(&text) {
            Some(observation) => (Value::Null, observation),
            None => named(text.as_bytes()).map_err(|why| invalid(&format!("this is no failure: {why}")))?,
        }
    };
    observation.provider = provider.clone().or(observation.provider);
    observation.wire = wire.clone().or(observation.wire);
    observation.phase = phase.map(Into::into).or(observation.phase);
    Ok((id, observation))
}

/// What is wrong with a header is said without it: it may be a credential's.
fn one_header(line: &str) -> Result<(String, String), Error> {
    let (name, value) = line.split_once(':').ok_or_else(|| {
        Error::new(codes::USER_INVALID_INPUT, "a --header has no colon")
            .with_hint("write it as it came: --header 'retry-after: 20'")
    })?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

fn invalid(message: &str) -> Error {
    Error::new(codes::USER_INVALID_INPUT, message).with_hint(HINT)
}

// ---- Many, for machines.

/// Answers each line with a line, in order. Holds one line at a time.
fn answer_each(mut input: BufReader<Box<dyn Read>>) -> Result<u8, Error> {
    let unreadable = |error| cannot_read("the failures", error);
    let mut output = Lines::start();
    let mut code = exit::SUCCESS;
    let mut text = Vec::new();
    for number in 1_u64.. {
        // Whoever waits for an answer before it asks again has it.
        let written = if input.buffer().contains(&b'\n') { Ok(()) } else { output.flush() };
        if let Err(error) = written {
            return Ok(reader_left(&error, code));
        }
        text.clear();
        let read = input.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut text).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        let is_whole = text.ends_with(b"\n") || (read as u64) < LINE_LIMIT;
        if !is_whole {
            input.skip_until(b'\n').map_err(unreadable)?;
        } else if text.trim_ascii().is_empty() {
            continue;
        }
        let named = if is_whole { named(&text) } else { Err("it is longer than 16 MiB".to_owned()) };
        match named {
            Ok((id, observation)) => {
                let answer = line(id, &judge(&observation.into_failure()));
                if let Err(error) = output.write(&answer.to_string()) {
                    return Ok(reader_left(&error, code));
                }
            }
            Err(why) => {
                talk(format_args!("error: line {number} is no failure: {why}"));
                code = exit::USAGE;
            }
        }
    }
    Ok(output.flush().map_or_else(|error| reader_left(&error, code), |()| code))
}

/// The exit code where standard output takes no more. A reader that has left is quiet.
fn reader_left(error: &io::Error, code: u8) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return code;
    }
    talk(format_args!("error: cannot write to standard output: {error}"));
    exit::FAILED
}

// ---- What both need.

/// A failure in JSON, with its name; or what is wrong with it, without a word of it: it may hold a credential.
fn named(text: &[u8]) -> Result<(Value, Observation), String> {
    let wrong = |error: &serde_json::Error| {
        let what = if error.is_data() { "a field has a value of the wrong kind" } else { "it is not JSON" };
        format!("{what} (line {}, column {} of it)", error.line(), error.column())
    };
    let value: Value = serde_json::from_slice(text).map_err(|error| wrong(&error))?;
    if !value.is_object() {
        return Err("it is not a JSON object".to_owned());
    }
    let observation: Observation = serde_json::from_slice(text).map_err(|error| wrong(&error))?;
    if observation.is_blank() {
        return Err("it has none of phase, status, body, sse_event, exception".to_owned());
    }
    let mut id = value.get("id").cloned().unwrap_or_default();
    redactor().value(&mut id);
    Ok((id, observation))
}

/// The verdict as the corpus is graded by.
fn line(id: Value, verdict: &Verdict) -> Value {
    json!({
        "id": id,
        "reason": verdict.reason,
        "code": verdict.code().as_str(),
        "retryable": verdict.retryable,
        "retry_after_ms": verdict.wait.map(|wait| wait.delay_ms),
        "rule": verdict.rule,
    })
}

fn redactor() -> Redactor {
    Redactor::new(DEFAULT_KEYS.map(str::to_owned), [])
}

fn open(file: Option<&Path>) -> Result<Box<dyn Read>, Error> {
    match file {
        Some(file) if file != Path::new("-") => {
            let opened = File::open(file).map_err(|error| cannot_read(&file.display().to_string(), error))?;
            Ok(Box::new(opened))
        }
        _ => Ok(Box::new(io::stdin())),
    }
}

/// The whole text; bytes that are none are replaced.
fn read(file: Option<&Path>) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let name = file.map_or("standard input".to_owned(), |file| file.display().to_string());
    open(file)?.read_to_end(&mut bytes).map_err(|error| cannot_read(&name, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cannot_read(what: &str, error: io::Error) -> Error {
    Error::new(codes::USER_INVALID_INPUT, format!("cannot read {what}: {error}")).with_foreign_cause(error)
}
