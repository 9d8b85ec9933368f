//! What Aplomb does not have: keys whose behaviour comes later, and parts of other systems' configs, each by name.
//!
//! A key that silently does nothing is worse than none, so a config that uses one is refused.

use super::document::Node;
use super::problem::{Path, Problem};
use crate::json_schema::Schema;

/// The keys whose behaviour comes later, and with what. Their defaults, which say what happens now, may be written.
pub const PENDING_KEYS: &[(&str, &str)] = &[
    ("session.max_steps", "stored sessions"),
    ("traffic.quota.enabled", "the gate"),
    ("traffic.quota.capacity", "the gate"),
    ("traffic.cooldown.scope", "the gate"),
    ("traffic.max_concurrency", "the gate"),
    ("skills", "skills"),
    ("logging", "telemetry"),
    ("diagnostics.error_snapshot_last_n", "telemetry"),
    ("agents[].runtime.session_queue_size", "stored sessions"),
    ("agents[].runtime.event_queue_size", "event sinks"),
    ("agents[].runtime.interrupt_grace_ms", "tools that end in order"),
    ("agents[].context_assembler.config.head_room_tokens", "windows that are known"),
    ("agents[].context_assembler.config.compact_at", "windows that are known"),
    ("agents[].llm.stream_endpoint", "an address of their own for streams"),
    ("agents[].retry.resume.base_delay_ms", "durable runs"),
    ("agents[].retry.resume.max_delay_ms", "durable runs"),
];

/// Something that another system's config has, and what there is instead.
pub(super) struct Lacking {
    key: &'static str,
    pub(super) what: &'static str,
    pub(super) instead: &'static str,
}

const LACKING: &[Lacking] = &[
    Lacking {
        key: "multi_agent",
        what: "Aplomb has no agents that hand over to each other",
        instead: "list the agents, and let your program call them, or one be the other's tool",
    },
    Lacking {
        key: "diagnostics.type",
        what: "Aplomb's diagnostics are no plugin",
        instead: "remove `type`; `redact_keys` stays as it is",
    },
    Lacking {
        key: "diagnostics.impl",
        what: "Aplomb's diagnostics are no plugin",
        instead: "register an events plugin, and name it under `events`",
    },
    Lacking {
        key: "diagnostics.config",
        what: "Aplomb's diagnostics are no plugin",
        instead: "remove `config`; `redact_keys` stays as it is",
    },
    Lacking {
        key: "pattern.config.max_steps",
        what: "the limit of steps is the agent's, not the pattern's",
        instead: "move it to the agent's runtime.max_steps",
    },
    Lacking {
        key: "pattern.config.step_timeout_ms",
        what: "the time limit of a step is the agent's, not the pattern's",
        instead: "move it to the agent's runtime.step_timeout_ms",
    },
    Lacking {
        key: "llm.api_key",
        what: "a key is not written into a config",
        instead: "put it into an environment variable, and its name into api_key_env",
    },
];

/// What there is instead of a key that is known to be lacking.
pub(super) fn of(path: &str) -> Option<&'static Lacking> {
    LACKING.iter().find(|lacking| path == lacking.key || path.ends_with(&format!(".{}", lacking.key)))
}

/// Reports every key whose behaviour comes later, unless what it says is what happens now.
pub(super) fn check(schema: &Schema, root: &Node, problems: &mut Vec<Problem>) {
    for (key, with) in PENDING_KEYS {
        let key = key.replace("[]", ".[]");
        let steps: Vec<_> = key.split('.').collect();
        let default = schema.at(&steps).and_then(|schema| schema.get("default")).cloned().unwrap_or_default();
        let mut report = |steps: &[&str]| {
            visit(root, &Path::root(), steps, &mut |node, path| {
                if node.to_value() != default {
                    let what = format!("this does nothing yet; it comes with {with}");
                    problems.push(Problem::invalid(path, what).at(&node.span).help("remove the key"));
                }
            });
        };
        report(&steps);
        // A fallback is a model like the first.
        if let ["agents", "[]", "llm", of_model @ ..] = steps.as_slice() {
            report(&[&["agents", "[]", "llm", "fallbacks", "[]"], of_model].concat());
        }
    }
}

fn visit(node: &Node, path: &Path<'_>, steps: &[&str], found: &mut impl FnMut(&Node, &Path<'_>)) {
    match steps.split_first() {
        None => found(node, path),
        Some((&"[]", rest)) => {
            for (index, item) in node.items().iter().enumerate() {
                visit(item, &path.item(index), rest, found);
            }
        }
        // A program's own plugin has keys of its own.
        Some((&"config", _)) if node.entry("impl").is_some() => {}
        Some((step, rest)) => {
            if let Some(entry) = node.entry(step) {
                visit(&entry.node, &path.field(entry.written()), rest, found);
            }
        }
    }
}
