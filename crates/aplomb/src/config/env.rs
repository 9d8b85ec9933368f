//! `${VAR}` and `${VAR:-default}` in a config's texts, and the variables that set values over it. The only place of the
//! config that reads the environment.

use aplomb_core::error::codes;

use super::document::{Content, Node};
use super::problem::{Path, Problem};

/// How the names of variables begin that set values.
pub(super) const PREFIX: &str = "APLOMB_CONFIG__";

/// The variables that set values, with their values where they are Unicode. An empty one counts as not set, as in a text.
pub(super) fn variables() -> Vec<(String, Option<String>)> {
    let found = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy();
        let is_ours = name.starts_with(PREFIX) && !value.is_empty();
        is_ours.then(|| (name.into_owned(), value.into_string().ok()))
    });
    found.collect()
}

/// Replaces the variables in every text, and says which ones are not set.
pub(super) fn replace(root: &mut Node, problems: &mut Vec<Problem>) {
    walk(root, &Path::root(), &mut variable, problems);
}

/// A text with its variables replaced, where that can be done.
pub(super) fn replaced_in(text: &str) -> Option<String> {
    replaced(text, &mut variable).ok()
}

/// The names of the variables in a text.
pub(super) fn names_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut note = |name: &str| {
        names.push(name.to_owned());
        Some(".".to_owned())
    };
    // What cannot be replaced names no more.
    let _text = replaced(text, &mut note);
    names
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn walk(
    node: &mut Node,
    path: &Path<'_>,
    variable: &mut dyn FnMut(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
) {
    match &mut node.value {
        Content::Text(text) if text.contains("${") => match replaced(text, variable) {
            Ok(replaced) => {
                let written = std::mem::replace(text, replaced);
                node.written.get_or_insert(written.into());
            }
            Err(Unusable { what, help }) => {
                let problem = Problem::new(codes::CONFIG_LOAD, path, what).at(&node.span);
                problems.push(problem.meant(Some(help)));
            }
        },
        Content::List(items) => {
            items.iter_mut().enumerate().for_each(|(index, item)| {
                walk(item, &path.item(index), variable, problems);
            });
        }
        Content::Table(entries) => {
            for entry in entries {
                let path = path.field(&entry.key);
                walk(&mut entry.node, &path, variable, problems);
            }
        }
        _ => {}
    }
}

struct Unusable {
    what: String,
    help: String,
}

fn replaced(text: &str, variable: &mut dyn FnMut(&str) -> Option<String>) -> Result<String, Unusable> {
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        replaced.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            let (what, help) = ("a ${ without its }", "write ${NAME}, or ${NAME:-default}");
            return Err(Unusable { what: what.to_owned(), help: help.to_owned() });
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            // It is not repeated: what stands there in place of a name may be anything.
            return Err(Unusable {
                what: "what stands in ${…} is not the name of a variable".to_owned(),
                help:
                    "a name has letters, digits and underscores, such as ${API_BASE} or ${API_BASE:-default}"
                        .to_owned(),
            });
        }
        match (variable(name).filter(|value| !value.is_empty()), default) {
            (Some(value), _) => replaced.push_str(&value),
            (None, Some(default)) => replaced.push_str(default),
            (None, None) => {
                return Err(Unusable {
                    what: format!("the environment variable {name} is not set"),
                    help: format!("export {name}=…, or give it a default: ${{{name}:-…}}"),
                });
            }
        }
        rest = after;
    }
    replaced.push_str(rest);
    Ok(replaced)
}

/// Source: POSIX.1-2017, Base Definitions, 8.1, "Environment Variable Definition".
fn is_name(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, String> {
        let mut variable = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            _ => None,
        };
        replaced(text, &mut variable).map_err(|unusable| unusable.what)
    }

    #[test]
    fn variables_are_replaced_once_and_defaults_stand_in_for_what_is_unset_or_empty() {
        for (text, expected) in [
            ("plain", "plain"),
            ("http://${HOST}/v1", "http://example.com/v1"),
            ("${HOST}${HOST}", "example.comexample.com"),
            ("${NONE:-here}", "here"),
            ("${NONE:-}", ""),
            ("${EMPTY:-there}", "there"),
            ("${HOST:-unused}", "example.com"),
            ("${NONE:-a:-b}", "a:-b"),
            ("${NESTED}", "${HOST}"),
            ("$HOST and $ {HOST}", "$HOST and $ {HOST}"),
        ] {
            assert_eq!(with(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_named_unless_it_is_no_name() {
        assert!(with("${NONE}").unwrap_err().contains("NONE"));
        assert!(with("${EMPTY}").unwrap_err().contains("EMPTY"));
        assert!(with("${HOST").unwrap_err().contains("without its }"));
        for wrong in ["${}", "${sk-secret}", "${A B}", "${1A}", "${:-x}"] {
            let what = with(wrong).unwrap_err();
            assert!(what.contains("not the name") && !what.contains("secret"), "{what}");
        }
    }
}
