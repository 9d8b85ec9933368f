//! `aplomb policy`: what an agent's settings come to where model calls fail. Nothing is sent, and no key is needed.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use aplomb::config::AgentConfig;
use aplomb::decide::schedule::{ByEntry, Overview, Planned, Schedule, WorstByEntry, WorstCase};
use aplomb::decide::{Layer, Mode};
use aplomb::plugins::Registry;
use aplomb::{Error, Runtime};
use serde_json::{Value, json};

use crate::args::{PolicyArguments, ReportFormat};
use crate::inspect::load;
use crate::output::for_terminal;
use crate::report::{self, Report};
use crate::run::only_agent;

/// The most columns of a line.
const WIDTH: usize = 100;

/// The most waits of a schedule that are written out.
const MOST: usize = 40;

pub(crate) fn policy(arguments: &PolicyArguments, registry: Registry) -> u8 {
    report::give_as(arguments.format, told(arguments, registry))
}

fn told(arguments: &PolicyArguments, registry: Registry) -> Result<Report, Error> {
    let config = load(&arguments.config, &arguments.set)?;
    let agent_id = match &arguments.agent {
        Some(agent) => agent.clone(),
        None => only_agent(&config)?,
    };
    let agent = config.agents.iter().find(|agent| agent.id == agent_id).cloned();
    let timeout = arguments.timeout_ms.map(Duration::from_millis);
    let overview = Runtime::builder(config).plugins(registry).policy_overview(&agent_id, timeout)?;
    Ok(match (arguments.format, agent) {
        (ReportFormat::Text, Some(agent)) => {
            Report::data(for_terminal(&text(&agent, arguments.timeout_ms, &overview)))
        }
        _ => {
            let mut told = json!(overview);
            if let Value::Object(fields) = &mut told {
                fields.insert("agent".to_owned(), json!(agent_id));
            }
            Report::json(&told)
        }
    })
}

fn text(agent: &AgentConfig, timeout_ms: Option<u64>, overview: &Overview) -> String {
    let mut page = Page::default();
    let mode = named(overview.mode);
    let jitter = json!(agent.llm.retry.jitter);
    let jitter = jitter.as_str().unwrap_or_default();
    let models = match agent.llm.fallbacks.len() {
        0 => "1 model".to_owned(),
        others => format!("{} models", others.saturating_add(1)),
    };
    let within = timeout_ms.map(|limit| format!(", a run of at most {}", time(limit))).unwrap_or_default();
    page.line(format_args!("agent {}: mode {mode}, jitter {jitter}, {models}{within}", agent.id));
    page.line(format_args!(""));
    page.line(format_args!(
        "A call that fails in the same way each time: requests, and what is waited between them"
    ));
    page.line(format_args!(""));
    page.line(format_args!("{:22}{:39}{}", "", "additive", "layered"));
    page.line(format_args!("{:22}{}{}", "", heads(), heads()));
    for (class, by_mode) in &overview.classes {
        let cells: String =
            [&by_mode.additive, &by_mode.layered].into_iter().flat_map(schedules).map(cell).collect();
        page.line(format_args!("{class:20}{cells}"));
    }
    page.line(format_args!(""));
    page.line(format_args!(
        "run, exec: nothing of the answers was handed over. streamed: by run_stream, after some words."
    ));
    match jitter {
        "none" => {}
        "equal" => page.line(format_args!(
            "Waits are without jitter; with it, a back-off is between half of that and all of it."
        )),
        _ => page
            .line(format_args!("Waits are without jitter; with it, a back-off is between nothing and that.")),
    }
    if let Some(silent) = overview.classes.get("timeout").map(|class| class.additive.run.attempt_ms) {
        page.line(format_args!(
            "timeout: each attempt takes {} besides. overflow: there is something to leave out each time.",
            time(silent)
        ));
    }
    waits(&mut page, overview);
    worst_case(&mut page, overview);
    warnings(&mut page, overview);
    page.0
}

/// The waits one by one, in the agent's own mode. Classes that are treated alike are told together.
fn waits(page: &mut Page, overview: &Overview) {
    let mut alike: BTreeMap<(u32, String), [Vec<&str>; 3]> = BTreeMap::new();
    for (class, by_mode) in &overview.classes {
        let by_entry = if overview.mode == Mode::Layered { &by_mode.layered } else { &by_mode.additive };
        let indices = 0..3;
        for (index, schedule) in indices.zip(schedules(by_entry)) {
            let of_entry = alike.entry((schedule.requests, steps(schedule))).or_default().get_mut(index);
            of_entry.into_iter().for_each(|classes: &mut Vec<&str>| classes.push(class));
        }
    }
    page.line(format_args!(""));
    page.line(format_args!(
        "What is waited before each retry, in seconds ({}, as configured)",
        named(overview.mode)
    ));
    for ((_, steps), by_entry) in alike {
        page.line(format_args!(""));
        page.wrapped("  ", &steps);
        for (entry, classes) in ENTRIES.into_iter().zip(by_entry).filter(|(_, classes)| !classes.is_empty()) {
            page.wrapped(&format!("    {entry:10}"), &classes.join(", "));
        }
    }
}

fn worst_case(page: &mut Page, overview: &Overview) {
    let of_all = &overview.worst_case;
    page.line(format_args!(""));
    page.line(format_args!("The most that one call may cost, whatever fails"));
    page.line(format_args!(""));
    page.line(format_args!("{:40}{:26}{}", "", "additive", "layered"));
    page.line(format_args!("{:40}{:13}{:13}{:13}{}", "", "run", "exec", "run", "exec"));
    let mut row = |label: &str, value: fn(&WorstCase) -> String| {
        let worst = [&of_all.additive, &of_all.layered]
            .into_iter()
            .flat_map(|WorstByEntry { run, exec, .. }| [run, exec]);
        let cells: String = worst.map(|worst| format!("{:13}", value(worst))).collect();
        page.line(format_args!("{label:40}{cells}"));
    };
    row("requests", |worst| worst.requests.to_string());
    row("waits", |worst| time(worst.wait_ms));
    row("waits, where long ones are asked for", |worst| time(worst.wait_hinted_ms));
    let own = if overview.mode == Mode::Layered { &of_all.layered } else { &of_all.additive };
    page.line(format_args!(""));
    for (entry, worst) in [("run", &own.run), ("exec", &own.exec)] {
        let shares = worst.shares.iter().filter(|share| share.requests > 0);
        let shares: Vec<_> = shares.map(|share| format!("{} {}", share.name, share.requests)).collect();
        page.wrapped(&format!("requests by {entry:5}"), &shares.join(" + "));
    }
}

fn warnings(page: &mut Page, overview: &Overview) {
    for warning in &overview.warnings {
        page.line(format_args!(""));
        page.wrapped("warning: ", &format!("{}: {}", warning.setting, warning.message));
    }
}

const ENTRIES: [&str; 3] = ["run", "exec", "streamed"];

fn heads() -> String {
    ENTRIES.map(|entry| format!("{entry:13}")).concat()
}

fn schedules(by_entry: &ByEntry) -> [&Schedule; 3] {
    [&by_entry.run, &by_entry.exec, &by_entry.stream]
}

/// Requests, and the sum of the waits where there is one.
fn cell(schedule: &Schedule) -> String {
    let more = if schedule.complete { "" } else { "+" };
    let requests = format!("{}{more}", schedule.requests);
    let waits = if schedule.wait_ms == 0 { String::new() } else { time(schedule.wait_ms) };
    format!("{requests:>4} {waits:>8}")
}

/// What comes before each attempt but the first.
fn steps(schedule: &Schedule) -> String {
    let retries = schedule.attempts.get(1..).unwrap_or_default();
    if retries.is_empty() {
        return "no retry".to_owned();
    }
    let mut steps: Vec<(String, usize)> = Vec::new();
    for step in retries.iter().map(step) {
        match steps.last_mut() {
            Some((last, times)) if *last == step => *times = times.saturating_add(1),
            _ => steps.push((step, 1)),
        }
    }
    let more: usize = steps.iter().skip(MOST).map(|(_, times)| times).sum();
    let told = steps.into_iter().take(MOST).map(|(step, times)| match times {
        1 => step,
        2 => format!("{step}, {step}"),
        _ => format!("{times} times {step}"),
    });
    let rest = (more > 0).then(|| format!("and {more} more"));
    told.chain(rest).collect::<Vec<_>>().join(", ")
}

fn step(planned: &Planned) -> String {
    match planned.layer {
        Layer::Fallback => format!("model {}", planned.target.saturating_add(1)),
        Layer::Compaction => "shortened".to_owned(),
        Layer::Refresh => "the new key".to_owned(),
        _ => (planned.delay_ms as f64 / 1_000.0).to_string(),
    }
}

fn named(mode: Mode) -> &'static str {
    match mode {
        Mode::Layered => "layered",
        _ => "additive",
    }
}

/// A time in at most eight columns: `500 ms` is `0.5 s`, and nobody waits for a year.
fn time(time_ms: u64) -> String {
    const HOUR_MS: u64 = 3_600_000;
    match time_ms {
        ..10_000_000 => format!("{} s", time_ms as f64 / 1_000.0),
        _ if time_ms / HOUR_MS < 8_760 => format!("{} h", time_ms / HOUR_MS),
        _ => "> 1 year".to_owned(),
    }
}

/// Lines of at most [`WIDTH`] columns.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        let _never_fails = writeln!(self.0, "{}", line.to_string().trim_end());
    }

    /// Words after a label, continued below the first of them.
    fn wrapped(&mut self, label: &str, words: &str) {
        let mut line = label.to_owned();
        let indent = label.chars().count();
        let mut is_empty = true;
        for word in words.split(' ') {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(format_args!("{line}"));
                line = " ".repeat(indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        self.line(format_args!("{line}"));
    }
}
