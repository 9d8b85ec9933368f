//! Holds the events of one run against the taxonomy.

use aplomb_core::event::{EventName, names};
use serde_json::{Map, Value};

/// Checks a file of events, one JSON object a line.
pub(crate) fn check(file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let (count, problems) = problems(&text);
    if problems.is_empty() {
        return Ok(format!("{count} events, as the taxonomy has them"));
    }
    Err(problems.join("\n"))
}

fn problems(text: &str) -> (usize, Vec<String>) {
    let mut problems = Vec::new();
    let mut run = Run::default();
    let mut count = 0;
    for (index, line) in text.lines().enumerate() {
        count += 1;
        let found = match serde_json::from_str::<Map<String, Value>>(line) {
            Ok(event) => run.take(&event),
            Err(error) => vec![format!("not a JSON object: {error}")],
        };
        problems.extend(found.into_iter().map(|problem| format!("line {}: {problem}", index + 1)));
    }
    if run.last_name.as_deref() != Some(names::SESSION_RUN_COMPLETED.as_str()) {
        problems.push(format!("the last event is {:?}, not the end of a run", run.last_name));
    }
    (count, problems)
}

/// What the events so far say of the run.
#[derive(Default)]
struct Run {
    last_name: Option<String>,
    ids: Option<[Value; 3]>,
    next_sequence: u64,
    timestamp_ms: u64,
}

impl Run {
    fn take(&mut self, event: &Map<String, Value>) -> Vec<String> {
        let mut problems = Vec::new();
        let field = |field: &str| event.get(field).cloned().unwrap_or_default();
        let name = field("name").as_str().unwrap_or_default().to_owned();
        match (EventName::find(&name), field("payload").as_object()) {
            (None, _) => problems.push(format!("no event is called {name:?}")),
            (_, None) => problems.push("the payload is not an object".to_owned()),
            (Some(known), Some(payload)) => problems.extend(known.violations(payload)),
        }
        if self.last_name.is_none() && name != names::SESSION_RUN_STARTED.as_str() {
            problems.push(format!("the first event is {name}"));
        }
        if self.last_name.as_deref() == Some(names::SESSION_RUN_COMPLETED.as_str()) {
            problems.push(format!("{name} after the end of the run"));
        }
        let ids = ["run_id", "session_id", "agent_id"].map(field);
        if ids.iter().any(|id| !id.is_string()) || *self.ids.get_or_insert_with(|| ids.clone()) != ids {
            problems.push("run, session or agent is missing, or another one".to_owned());
        }
        let sequence = field("sequence").as_u64();
        if sequence != Some(self.next_sequence) {
            problems.push(format!("sequence {sequence:?} where {} follows", self.next_sequence));
        }
        self.next_sequence = sequence.unwrap_or(self.next_sequence) + 1;
        let timestamp_ms = field("timestamp_ms").as_u64().unwrap_or_default();
        if timestamp_ms < self.timestamp_ms || timestamp_ms == 0 {
            problems.push(format!("the time {timestamp_ms} after {}", self.timestamp_ms));
        }
        self.timestamp_ms = timestamp_ms;
        self.last_name = Some(name);
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, sequence: u64, payload: Value) -> String {
        json!({"name": name, "run_id": "r", "session_id": "s", "agent_id": "a", "sequence": sequence,
               "timestamp_ms": 1_000 + sequence, "payload": payload})
        .to_string()
    }

    fn run(middle: &[String]) -> String {
        let first = event("session.run.started", 0, json!({"agent_id": "a", "session_id": "s"}));
        let end = json!({"agent_id": "a", "session_id": "s", "stop_reason": "completed"});
        let last = event("session.run.completed", 1 + middle.len() as u64, end);
        let lines: Vec<_> = [&first].into_iter().chain(middle).chain([&last]).map(String::as_str).collect();
        lines.join("\n")
    }

    #[test]
    fn a_run_as_it_should_be_has_no_problems() {
        let called = event("llm.called", 1, json!({"model": "m"}));
        assert_eq!(problems(&run(&[called])), (3, vec![]));
    }

    #[test]
    fn gaps_unknown_names_and_missing_fields_are_found() {
        let text = run(&[event("llm.called", 1, json!({})), event("llm.caled", 3, json!({}))]);
        let (_, problems) = problems(&text);
        assert_eq!(
            problems,
            [
                "line 2: llm.called: the payload lacks `model`",
                "line 3: no event is called \"llm.caled\"",
                "line 3: sequence Some(3) where 2 follows",
                "line 4: sequence Some(3) where 4 follows",
            ]
        );
    }

    #[test]
    fn a_run_that_does_not_end_is_found() {
        assert_eq!(problems("").1, ["the last event is None, not the end of a run"]);
    }
}
