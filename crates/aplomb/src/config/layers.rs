//! What is set over a document: by environment variables and by flags. Knows how both are written and where what they set
//! goes; whether it fits is the schema's to say.

use std::collections::HashMap;
use std::ops::Range;

use aplomb_core::near::did_you_mean;
use aplomb_core::redact;
use serde_json::Value;

use super::document::{self, Broken, Content, DEEPEST, Document, Entry, Giver, Node, Source, Span};
use super::env::{self, PREFIX};
use super::problem::{Problem, below, listed, shown};
use crate::json_schema::{Schema, resolved};

/// How a flag is called.
const FLAG: &str = "--set";

/// What stands for a variable's value, which is not shown.
const VALUE: &str = "…";

/// A value and where it goes, as it was written.
pub(super) struct Override {
    source: Source,
    path: Result<Vec<Step>, Broken>,
    /// Its places are those in the source's text.
    value: Result<Node, Broken>,
}

/// A key, or an item's place or id.
#[derive(Clone)]
struct Step {
    text: String,
    range: Range<usize>,
    /// Whether it is in brackets, so that it names an item.
    is_item: bool,
}

impl Override {
    /// What `PATH=VALUE` says.
    pub(super) fn flag(assignment: &str) -> Override {
        let Some((path, raw)) = assignment.split_once('=') else {
            return Override::without_value(assignment);
        };
        let path_at = FLAG.len() + 1;
        let value_at = path_at + path.len() + 1;
        let mut value = document::value(raw).map_err(|broken| Broken { at: value_at, ..broken });
        if let Ok(node) = &mut value {
            node.for_each_span(&mut |span| {
                span.start += value_at;
                span.end += value_at;
            });
        }
        let credential = credential_in(path, path.split(IN_PATHS), 1);
        let shown = without_credential(path, credential);
        let named = if path.is_empty() { FLAG.to_owned() } else { format!("{FLAG} {shown}") };
        // What is not known to be a value cannot be hidden.
        let text = match value {
            Ok(_) if credential.is_none() => format!("{FLAG} {path}={raw}"),
            _ => format!("{named}={VALUE}"),
        };
        let steps = match credential {
            Some(at) => Err(Broken::credential(path_at + at)),
            None => steps(path, path_at),
        };
        Override { source: Source::new(Giver::Flag(named.into()), &text), path: steps, value }
    }

    /// What stands there in place of a path may be anything; it is shown as far as it looks like one.
    fn without_value(assignment: &str) -> Override {
        let is_of_path = |sign: char| sign.is_alphanumeric() || "_-.$[]".contains(sign);
        let end = assignment.find(|sign| !is_of_path(sign)).unwrap_or(assignment.len());
        let path = assignment.get(..end).unwrap_or_default();
        let path = without_credential(path, credential_in(path, path.split(IN_PATHS), 1));
        let text = if path.is_empty() { FLAG.to_owned() } else { format!("{FLAG} {path}") };
        let missing = Broken {
            at: text.len(),
            what: "a value is missing".to_owned(),
            hint: Some("write PATH=VALUE, such as --set agents.0.llm.model=gpt-4o"),
        };
        let source = Source::new(Giver::Flag(text.as_str().into()), &text);
        Override { source, path: Ok(Vec::new()), value: Err(missing) }
    }

    /// What a variable says; without a value where that is not Unicode.
    pub(super) fn variable(name: &str, value: Option<&str>) -> Override {
        let steps = || name.get(PREFIX.len()..).unwrap_or_default().split("__");
        let credential = credential_in(name, name.split("__"), 2);
        let shown = without_credential(name, credential);
        let text = format!("{shown}={VALUE}");
        let value_at = shown.len() + 1;
        let here = Span::here(value_at..text.len());
        let of_text = |value: &str| {
            let mut node = document::value(value).map_err(|broken| Broken { at: value_at, ..broken })?;
            node.for_each_span(&mut |span| *span = here);
            node.show_as(&format!("${{{shown}}}"));
            Ok(node)
        };
        let not_unicode = || Broken {
            at: value_at,
            what: "its value is not Unicode".to_owned(),
            hint: Some("save it as UTF-8"),
        };
        let (mut path, mut at) = (Vec::new(), PREFIX.len());
        for step in steps() {
            path.push(Step { text: step.to_uppercase(), range: at..at + step.len(), is_item: false });
            at += step.len() + 2;
        }
        let empty = path.iter().find(|step| step.text.is_empty()).map(|step| Broken {
            at: step.range.start,
            what: "a key is missing here".to_owned(),
            hint: Some(
                "write two underscores before each key, such as APLOMB_CONFIG__SESSION__LOCK_TIMEOUT_MS",
            ),
        });
        let wrong = credential.map(Broken::credential).or(empty);
        Override {
            source: Source::new(Giver::Variable(shown.as_str().into()), &text),
            path: wrong.map_or(Ok(path), Err),
            value: value.map_or_else(|| Err(not_unicode()), of_text),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.source.name()
    }

    /// How many steps its path has.
    pub(super) fn depth(&self) -> usize {
        self.path.as_ref().map_or(0, Vec::len)
    }
}

impl Broken {
    fn credential(at: usize) -> Broken {
        let hint = Some("take it out; api_key_env takes the name of the variable that a key is in");
        Broken {
            at,
            what: "what stands here in place of a key of the config may be a credential".to_owned(),
            hint,
        }
    }
}

/// What is between the steps of a flag's path.
const IN_PATHS: [char; 3] = ['.', '[', ']'];

/// Where a credential begins that stands in place of a step. Between the steps are so many bytes.
fn credential_in<'p>(path: &str, steps: impl IntoIterator<Item = &'p str>, between: usize) -> Option<usize> {
    let mut at = 0;
    for step in steps {
        // An id in the name of a variable may begin as the keys of a vendor do, but those have no underscores.
        let is_name =
            step.contains('_') && !step.contains(|sign: char| sign != '_' && !sign.is_ascii_uppercase());
        // A web token has dots.
        let is_web_token = step.len() >= 16 && step.starts_with("eyJ");
        if is_web_token || !is_name && redact::text(step) != step {
            return Some(at);
        }
        at += step.len() + between;
    }
    // A credential of several words.
    (path.contains(char::is_whitespace) && redact::text(path) != path).then_some(0)
}

/// A path as it is shown. What follows a credential may be a part of it.
fn without_credential(path: &str, credential: Option<usize>) -> String {
    match credential {
        Some(at) => format!("{}{}", path.get(..at).unwrap_or_default(), redact::MARK),
        None => path.to_owned(),
    }
}

fn no_path(at: usize, what: &str) -> Broken {
    let hint = Some("a path is keys with dots between, such as agents.0.llm.model");
    Broken { at, what: what.to_owned(), hint }
}

/// The steps of `agents.0.llm`, `agents[0].llm` or `agents[my.agent].llm`, which begins at a place in its text.
fn steps(path: &str, start: usize) -> Result<Vec<Step>, Broken> {
    let refuse = |at: usize, what: &str| no_path(start + at, what);
    let (mut steps, mut at) = (Vec::new(), 0);
    loop {
        let rest = path.get(at..).unwrap_or_default();
        let (text, from, next, is_item) = match rest.strip_prefix('[') {
            Some(inside) if !steps.is_empty() => {
                let Some((text, _)) = inside.split_once(']') else {
                    return Err(refuse(at, "a [ without its ]"));
                };
                (text, at + 1, at + text.len() + 2, true)
            }
            _ => {
                let text = rest.split(['.', '[']).next().unwrap_or_default();
                (text, at, at + text.len(), false)
            }
        };
        if text.is_empty() {
            return Err(refuse(
                from,
                if path.is_empty() { "a path is missing" } else { "a key is missing here" },
            ));
        }
        steps.push(Step { text: text.to_owned(), range: start + from..start + from + text.len(), is_item });
        at = next;
        match path.get(at..).and_then(|rest| rest.chars().next()) {
            None => return Ok(steps),
            Some('.') => at += 1,
            Some('[') => {}
            Some(_) => return Err(refuse(at, "a dot is missing here")),
        }
    }
}

/// Notes a variable that sets nothing although it looks so: the place that warns of it.
pub(super) fn ignored(document: &mut Document, name: &str) -> Span {
    let shown = without_credential(name, credential_in(name, name.split("__"), 2));
    let source = document.add(Source::new(Giver::Variable(shown.as_str().into()), &shown));
    Span { source, ..Span::here(0..shown.len()) }
}

/// Lays overrides over a document, the later over the earlier. One that goes nowhere is a problem.
pub(super) fn lay(
    document: &mut Document,
    over: Vec<Override>,
    schema: &Schema,
    problems: &mut Vec<Problem>,
) {
    let (mut by_variable, mut renamed) = (HashMap::<String, String>::new(), HashMap::new());
    for Override { source, path, value } in over {
        let is_variable = matches!(source.giver, Giver::Variable(_));
        let name = source.name().to_owned();
        let number = document.add(source);
        let put = Put { whole: &schema.value, source: number, is_variable, renamed: &renamed };
        let mut value = match value {
            Ok(value) => value,
            Err(broken) => {
                problems.push(put.broken(&broken));
                problems.extend(path.err().map(|broken| put.broken(&broken)));
                continue;
            }
        };
        value.for_each_span(&mut |span| span.source = number);
        let steps = match path {
            Ok(steps) => steps,
            Err(broken) => {
                problems.push(put.broken(&broken));
                document.cover("", value);
                continue;
            }
        };
        if steps.len() + value.depth() > DEEPEST {
            problems.push(put.broken(&Broken::too_deep(0)));
            document.cover("", value);
            continue;
        }
        match put.find(&mut document.root, &steps) {
            Ok(Found { node, path, field, item }) => {
                if is_variable && let Some(other) = by_variable.get(&path) {
                    let problem = Problem::invalid(path, format!("{other} sets this, too")).at(&value.span);
                    problems.push(problem.help("unset one of the two"));
                    document.cover(&field, value);
                    continue;
                }
                let covered = std::mem::replace(node, value);
                if is_variable {
                    if let Some(item) = item.filter(|_| field == "id") {
                        renamed.insert(item, put.id(&covered));
                    }
                    by_variable.insert(path, name);
                }
                document.cover(&field, covered);
            }
            Err(problem) => {
                problems.push(*problem);
                document.cover(steps.last().map_or("", |step| &step.text), value);
            }
        }
    }
}

/// Finds where an override goes.
struct Put<'a> {
    whole: &'a Value,
    source: usize,
    is_variable: bool,
    /// The ids, by their items' paths, that variables have replaced: these have no order, so each goes by the ids that are
    /// there without them.
    renamed: &'a HashMap<String, Option<Id>>,
}

struct Found<'n> {
    node: &'n mut Node,
    path: String,
    /// The field that it is, or that it is an item of.
    field: String,
    /// The item that it is a field of.
    item: Option<String>,
}

/// An item's id as a step names it.
#[derive(Clone)]
struct Id {
    text: String,
    /// Whether it may be shown.
    is_shown: bool,
}

impl<'a> Put<'a> {
    fn span(&self, range: &Range<usize>) -> Span {
        Span { source: self.source, ..Span::here(range.clone()) }
    }

    fn broken(&self, broken: &Broken) -> Problem {
        let problem = Problem::invalid("", broken.what.as_str()).at(&self.span(&(broken.at..broken.at)));
        match broken.hint {
            Some(hint) => problem.help(hint),
            None => problem,
        }
    }

    /// Goes down a path. A table that is missing is made; an item is not.
    fn find<'n>(&self, root: &'n mut Node, steps: &[Step]) -> Result<Found<'n>, Box<Problem>> {
        let mut schema = Some(resolved(self.whole, self.whole));
        let mut found = Found { node: root, path: String::new(), field: String::new(), item: None };
        let mut left = steps;
        while let Some((step, after)) = left.split_first() {
            let is_list = schema.is_some_and(|schema| schema.get("items").is_some());
            if let Content::Null = found.node.value {
                found.node.value =
                    if is_list { Content::List(Vec::new()) } else { Content::Table(Vec::new()) };
            }
            let at = found.path.clone();
            let nothing_there = match found.node.value {
                Content::Table(_) => "it is an object: it has keys, and no items".to_owned(),
                _ => format!("it is {}, which has no keys", found.node.kind()),
            };
            let next = match &mut found.node.value {
                Content::List(items) => {
                    let index = self.index(items, step, after, &at)?;
                    schema = schema.and_then(|schema| schema.get("items"));
                    let path = format!("{at}[{index}]");
                    items.get_mut(index).map(|node| Found {
                        node,
                        item: Some(path.clone()),
                        path,
                        field: found.field,
                    })
                }
                Content::Table(entries) if !step.is_item => {
                    let key = self.key(entries, step, schema, &at)?;
                    schema = schema.and_then(|schema| schema.get("properties")?.get(&key));
                    let entry = self.entry(entries, &key, step, after.is_empty());
                    let item = found.item.filter(|item| *item == at);
                    entry.map(|entry| Found {
                        node: &mut entry.node,
                        path: below(&at, &key),
                        field: key,
                        item,
                    })
                }
                _ => None,
            };
            let span = self.span(&step.range);
            found = next.ok_or_else(|| Problem::invalid(&at, nothing_there).at(&span))?;
            schema = schema.map(|schema| resolved(self.whole, schema));
            left = after;
        }
        Ok(found)
    }

    /// The entry of a key, made where it is missing. The last step is where it is written.
    fn entry<'n>(
        &self,
        entries: &'n mut Vec<Entry>,
        key: &str,
        step: &Step,
        is_last: bool,
    ) -> Option<&'n mut Entry> {
        let span = self.span(&step.range);
        let place = entries.iter().position(|entry| entry.key == key).unwrap_or(entries.len());
        if place == entries.len() {
            entries.push(Entry::new(key.to_owned(), span, Node::new(Content::Null, span)));
        }
        let entry = entries.get_mut(place)?;
        if is_last {
            entry.key_span = span;
        }
        Some(entry)
    }

    /// The item that a step names, by its place or its id. What comes after it may show that an id was meant that has dots.
    fn index(&self, items: &[Node], step: &Step, after: &[Step], path: &str) -> Result<usize, Box<Problem>> {
        let refuse = |what: String| Problem::invalid(path, what).at(&self.span(&step.range));
        let count = match items.len() {
            0 => "is empty".to_owned(),
            1 => "has one, at 0".to_owned(),
            more => format!("has {more}, from 0 to {}", more - 1),
        };
        let wanted = shown(&step.text);
        let by_place = "name it by its place, a number from 0";
        let place = step.text.parse::<usize>().ok();
        if let Some(index) = place.filter(|index| *index < items.len()) {
            return Ok(index);
        }
        if place.is_some() || items.is_empty() {
            let wanted = if place.is_some() { wanted } else { format!("{wanted:?}") };
            let problem = refuse(format!("there is no item {wanted}; the list {count}"));
            let help = "an item is not made by setting its keys: set the whole list, as JSON";
            return Err(Box::new(problem.help(help)));
        }
        let ids: Vec<_> =
            items.iter().enumerate().map(|(index, item)| self.id_of(item, index, path)).collect();
        let is_meant = |id: &Option<Id>| id.as_ref().is_some_and(|id| id.text == step.text);
        let named: Vec<_> = ids.iter().enumerate().filter(|(_, id)| is_meant(id)).collect();
        Err(Box::new(match named.as_slice() {
            [(index, _)] => return Ok(*index),
            [] => {
                let known: Vec<_> = ids.iter().flatten().filter(|id| id.is_shown).collect();
                let known: Vec<_> = known.iter().map(|id| id.text.as_str()).collect();
                let problem = refuse(format!("none has the id {wanted:?}"));
                if let Some(id) = known.iter().find(|id| is_torn(id, step, after)) {
                    return Err(Box::new(
                        problem.help(format!("an id with dots goes in brackets: write {path}[{id}]")),
                    ));
                }
                match did_you_mean(&step.text, known.iter().copied()) {
                    Some(meant) => problem.meant(Some(meant)),
                    None if known.len() < items.len() => {
                        problem.help(format!("{by_place}; the list {count}"))
                    }
                    None if known.len() == 1 => problem.help(format!("the only id is {}", listed(&known))),
                    None => problem.help(format!("the ids are {}", listed(&known))),
                }
            }
            several => {
                let places: Vec<_> = several.iter().map(|(index, _)| format!("{path}[{index}]")).collect();
                refuse(format!("{wanted:?} names {}", listed(&places))).help(by_place)
            }
        }))
    }

    /// The id of an item of the list at a path.
    fn id_of(&self, item: &Node, index: usize, path: &str) -> Option<Id> {
        match self.renamed.get(&format!("{path}[{index}]")).filter(|_| self.is_variable) {
            Some(before) => before.clone(),
            None => self.id(&item.entry("id")?.node),
        }
    }

    fn id(&self, node: &Node) -> Option<Id> {
        let text = env::replaced_in(node.as_text()?)?;
        let is_shown = node.as_name("id") == Some(text.as_str());
        Some(Id { text: if self.is_variable { in_variables(&text) } else { text }, is_shown })
    }

    /// The key that a step names. A variable's is one of the schema, or one that is there, or in lower case.
    fn key(
        &self,
        entries: &[Entry],
        step: &Step,
        schema: Option<&Value>,
        path: &str,
    ) -> Result<String, Box<Problem>> {
        if !self.is_variable {
            return Ok(step.text.clone());
        }
        let known = schema.and_then(|schema| schema.get("properties")?.as_object());
        let named = |key: &&str| in_variables(key) == step.text;
        if let Some(key) = known.and_then(|known| known.keys().map(String::as_str).find(named)) {
            return Ok(key.to_owned());
        }
        let there: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).filter(named).collect();
        match there.as_slice() {
            [] => Ok(step.text.to_lowercase()),
            [key] => Ok((*key).to_owned()),
            several => {
                let what = format!("{:?} names {}", step.text, listed(several));
                let problem = Problem::invalid(path, what).at(&self.span(&step.range));
                Err(Box::new(problem.help("set it by --set, or in the file")))
            }
        }
    }
}

/// Whether an id that has dots was taken for a step and some after it.
fn is_torn(id: &str, step: &Step, after: &[Step]) -> bool {
    let mut steps = [step].into_iter().chain(after);
    id.contains('.') && id.split('.').all(|part| steps.next().is_some_and(|step| step.text == part))
}

/// A key or an id as the names of variables have it.
fn in_variables(name: &str) -> String {
    let sign = |sign: char| if sign.is_ascii_alphanumeric() { sign.to_ascii_uppercase() } else { '_' };
    name.chars().map(sign).collect()
}
