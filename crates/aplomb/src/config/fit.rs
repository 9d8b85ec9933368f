//! Holds a value against a JSON Schema, and says what does not fit: everything, with its place and what was expected.

use std::collections::HashSet;
use std::fmt::Write;

use aplomb_core::error::{Code, codes};
use aplomb_core::near::{did_you_mean, near};
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde::de::IgnoredAny;
use serde_json::{Number, Value};

use super::document::{Content, Entry, Form, Node, Span};
use super::lacking;
use super::problem::{Problem, below, listed, shown};
use crate::json_schema::{Schema, options, resolved};

impl Schema {
    /// What does not fit. Keys that are misspelt are mended, so that what stands below them is looked at, too.
    pub(super) fn check(&self, node: &mut Node, path: &str, code: Code, problems: &mut Vec<Problem>) {
        drop_nulls(node);
        self.whole_numbers(&self.value, node);
        let fit = Fit { schema: &self.value, path, code };
        self.choose_texts(&fit, node);
        let value = node.to_value();
        let errors: Vec<_> = self.validator.iter_errors(&value).collect();
        let unknown: Vec<_> = errors.iter().filter_map(|error| fit.unknown_keys(error)).collect();
        if unknown.is_empty() {
            problems.extend(errors.iter().filter_map(|error| fit.problem(error, node)));
            return;
        }
        for Unknown { pointer, keys, known } in unknown {
            fit.mend(node, &pointer, &keys, &known, problems);
        }
        self.choose_texts(&fit, node);
        self.whole_numbers(&self.value, node);
        let value = node.to_value();
        let errors = self.validator.iter_errors(&value);
        problems.extend(errors.filter_map(|error| fit.problem(&error, node)));
    }

    /// An override that reads as JSON is its text where the schema takes that and not the JSON.
    fn choose_texts(&self, fit: &Fit<'_>, node: &mut Node) {
        if !node.is_loose() {
            return;
        }
        let value = node.to_value();
        let errors = self.validator.iter_errors(&value);
        let texts: Vec<_> = errors.filter_map(|error| fit.text_instead(&error, node)).collect();
        for pointer in texts {
            let Some(node) = node_mut(node, &pointer) else { continue };
            if let Some(text) = node.or_text.take() {
                node.value = Content::Text(text.into());
            }
        }
    }

    /// Where the schema wants an integer, `1e3` and `1000.0` are 1000, as in JSON Schema (draft 2020-12, Validation, 6.1.1).
    fn whole_numbers(&self, schema: &Value, node: &mut Node) {
        let schema = resolved(&self.value, schema);
        match &mut node.value {
            Content::Number(number) if schema.get("type").is_some_and(|kind| kind == "integer") => {
                // Up to here every whole number has a float of its own.
                let exact = |number: &f64| number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
                if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).filter(exact) {
                    *number = Number::from(whole as i64);
                }
            }
            Content::List(items) => {
                if let Some(schema) = schema.get("items") {
                    items.iter_mut().for_each(|item| self.whole_numbers(schema, item));
                }
            }
            Content::Table(entries) => {
                for entry in entries {
                    if let Some(schema) = schema.get("properties").and_then(|fields| fields.get(&entry.key)) {
                        self.whole_numbers(schema, &mut entry.node);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The fields in which null is a value: a script has a vocabulary of its own, and in a patch of bodies null takes a field
/// away.
pub(super) const VERBATIM: [&str; 2] = ["script", "extra_body"];

/// Takes out the fields that are null: they have their defaults.
fn drop_nulls(node: &mut Node) {
    match &mut node.value {
        Content::Table(entries) => {
            entries.retain(|entry| !matches!(entry.node.value, Content::Null));
            let entries = entries.iter_mut().filter(|entry| !VERBATIM.contains(&&*entry.key));
            entries.for_each(|entry| drop_nulls(&mut entry.node));
        }
        Content::List(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The most unknown keys of one object for which a known one is looked for.
const MOST_LOOKED_AT: usize = 200;

struct Fit<'a> {
    schema: &'a Value,
    /// Where the value stands in the document.
    path: &'a str,
    code: Code,
}

struct Unknown {
    pointer: String,
    keys: Vec<String>,
    known: Vec<String>,
}

impl Fit<'_> {
    fn unknown_keys(&self, error: &ValidationError<'_>) -> Option<Unknown> {
        let (ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected }) = error.kind()
        else {
            return None;
        };
        let properties = self.owner(error).get("properties").and_then(Value::as_object);
        Some(Unknown {
            pointer: error.instance_path().as_str().to_owned(),
            keys: unexpected.clone(),
            known: properties.into_iter().flatten().map(|(key, _)| key.clone()).collect(),
        })
    }

    /// Reports unknown keys. One that is near to a key that is missing is taken for it; others are taken out.
    fn mend(
        &self,
        node: &mut Node,
        pointer: &str,
        keys: &[String],
        known: &[String],
        problems: &mut Vec<Problem>,
    ) {
        let (path, _) = self.locate(node, pointer);
        let Some(Node { value: Content::Table(entries), .. }) = node_mut(node, pointer) else { return };
        let mut told = 0;
        let unknown: HashSet<_> = keys.iter().map(String::as_str).collect();
        let present: HashSet<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        let mut missing: Vec<_> =
            known.iter().map(String::as_str).filter(|key| !present.contains(*key)).collect();
        entries.retain_mut(|entry| {
            if !unknown.contains(entry.key.as_str()) {
                return true;
            }
            told += 1;
            if told > MOST_LOOKED_AT {
                problems.push(Problem::new(self.code, &path, "there is no such key").at(&entry.key_span));
                return false;
            }
            let key = shown(&entry.key);
            let key_path = below(&path, &entry.key);
            let problem =
                Problem::new(self.code, &key_path, format!("there is no key {key:?}")).at(&entry.key_span);
            if let Some(instead) = lacking::of(&key_path) {
                problems.push(Problem { what: instead.what.to_owned(), ..problem }.help(instead.instead));
                return false;
            }
            // One that is there already and nearer, such as in another case, is what was meant: this one adds nothing.
            let nearest = near(&entry.key, known.iter().map(String::as_str)).first().copied();
            if let Some(right) = nearest.filter(|nearest| missing.contains(nearest)) {
                problems.push(problem.meant(did_you_mean(&entry.key, missing.iter().copied())));
                missing.retain(|key| *key != right);
                entry.misspelt = Some(std::mem::replace(&mut entry.key, right.to_owned()));
                return true;
            }
            problems.push(match did_you_mean(&entry.key, nearest) {
                Some(twice) => problem.meant(Some(twice)),
                None if known.is_empty() => problem.help("nothing can be set here"),
                None => problem.help(format!("the keys here are {}", listed(known))),
            });
            false
        });
    }

    /// Where a value stands that does not fit, and whose text is of the type that does.
    fn text_instead(&self, error: &ValidationError<'_>, node: &Node) -> Option<String> {
        let pointer = error.instance_path().as_str();
        let text = self.locate(node, pointer).1.node.or_text.as_deref()?;
        let owner = self.owner(error);
        let takes_text = |schema: &Value| match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            kind => kind.is_some_and(|kind| kind == "string"),
        };
        let fits = match error.kind() {
            ValidationErrorKind::Type { .. } => takes_text(owner),
            ValidationErrorKind::Enum { .. }
            | ValidationErrorKind::Constant { .. }
            | ValidationErrorKind::OneOfNotValid { .. }
            | ValidationErrorKind::AnyOf { .. } => {
                let branches = owner.get("anyOf").or(owner.get("oneOf")).and_then(Value::as_array);
                options(owner).iter().any(|option| option == text)
                    || branches.into_iter().flatten().any(takes_text) && options(owner).is_empty()
            }
            _ => false,
        };
        fits.then(|| pointer.to_owned())
    }

    fn problem(&self, error: &ValidationError<'_>, node: &Node) -> Option<Problem> {
        let (path, found) = self.locate(node, error.instance_path().as_str());
        let field = found.entry.map(Entry::written).unwrap_or_default();
        let new = |what: String| Problem::new(self.code, &path, what).at(&found.value_span());
        let owner = self.owner(error);
        let way_out = owner.get("x-way-out").and_then(Value::as_str);
        let with_way_out = |problem: Problem| match way_out {
            Some(way_out) => problem.help(way_out),
            None => problem,
        };
        Some(match error.kind() {
            // They have been reported, and mended.
            ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::UnevaluatedProperties { .. } => return None,
            ValidationErrorKind::Required { property } => {
                let property = property.as_str().unwrap_or_default();
                let path = if path.is_empty() { property.to_owned() } else { format!("{path}.{property}") };
                let problem = Problem::new(self.code, path, format!("{property:?} is missing"));
                let example = owner.pointer(&format!("/properties/{property}"));
                let example = example.and_then(|property| property.get("examples")?.get(0));
                let problem = problem.at(&found.owner_span());
                match example {
                    Some(example) => problem.help(format!("such as {property:?}: {example}")),
                    None => problem,
                }
            }
            ValidationErrorKind::Type { .. } => {
                let expected = kinds(owner.get("type"));
                let what = match &found.node.value {
                    Content::Number(_) if expected == "an integer" => "a number with a fraction",
                    _ => found.node.kind(),
                };
                let problem = match &found.node.value {
                    Content::Text(text) if text.is_empty() => new("it is empty".to_owned()),
                    _ => new(format!("expected {expected}, found {what}")),
                };
                match retyped(found.node, owner.get("type")) {
                    Some(help) => problem.help(help),
                    None => problem,
                }
            }
            ValidationErrorKind::Minimum { .. }
            | ValidationErrorKind::Maximum { .. }
            | ValidationErrorKind::ExclusiveMinimum { .. }
            | ValidationErrorKind::ExclusiveMaximum { .. } => {
                with_way_out(new(out_of_range(&found.node.as_number(), owner)))
            }
            ValidationErrorKind::MinLength { .. } => with_way_out(new("it is empty".to_owned())),
            ValidationErrorKind::MinItems { limit } => {
                new(format!("at least {limit} {} needed", if *limit == 1 { "is" } else { "are" }))
            }
            ValidationErrorKind::Pattern { pattern } => match owner.get("x-expected").and_then(Value::as_str)
            {
                Some(expected) => new(expected.to_owned()),
                None => new(format!("it does not match {pattern}")),
            },
            ValidationErrorKind::Enum { .. }
            | ValidationErrorKind::Constant { .. }
            | ValidationErrorKind::OneOfNotValid { .. }
            | ValidationErrorKind::AnyOf { .. } => {
                let options = options(owner);
                if options.is_empty() {
                    return self
                        .nearest_branch(error, node)
                        .or_else(|| Some(new("it has no form that fits".to_owned())));
                }
                let Some(text) = found.node.as_text() else {
                    let expected = match options.as_slice() {
                        [only] => format!("{only:?}"),
                        options => format!("one of {}", listed(options)),
                    };
                    let problem = new(format!("expected {expected}, found {}", found.node.kind()));
                    return Some(match &found.node.value {
                        Content::Number(number) if options.contains(&number.to_string()) => {
                            problem.help("put it in quotes")
                        }
                        _ => problem,
                    });
                };
                let known = options.iter().map(String::as_str);
                let name = found.node.as_name(field);
                let meant = name.and_then(|_| did_you_mean(text, known));
                let found = name.map_or("this".to_owned(), |name| format!("{name:?}"));
                let expected = match options.as_slice() {
                    [only] => format!("{found} is not {only}"),
                    options => format!("{found} is none of {}", listed(options)),
                };
                new(expected).meant(meant)
            }
            // Masked: a value that does not fit may be a secret all the same.
            _ => new(error.masked().to_string()),
        })
    }

    /// What is wrong with the form that the value comes nearest to.
    fn nearest_branch(&self, error: &ValidationError<'_>, node: &Node) -> Option<Problem> {
        let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
            error.kind()
        else {
            return None;
        };
        let nearest = context.iter().filter(|errors| !errors.is_empty()).min_by_key(|errors| {
            let other_kind =
                errors.iter().any(|error| matches!(error.kind(), ValidationErrorKind::Type { .. }));
            (other_kind, errors.len())
        })?;
        self.problem(nearest.first()?, node)
    }

    /// The schema that holds the keyword that was broken.
    fn owner(&self, error: &ValidationError<'_>) -> &Value {
        let mut at = self.schema;
        let path = error.evaluation_path().as_str().to_owned();
        let steps: Vec<_> = path.split('/').skip(1).collect();
        let Some((_keyword, steps)) = steps.split_last() else { return at };
        for step in steps {
            let step = unescaped(step);
            let next = match (step.as_str(), at) {
                ("$ref", _) => Some(resolved(self.schema, at)),
                (step, Value::Array(items)) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                (step, at) => at.get(step),
            };
            let Some(next) = next else { return at };
            at = next;
        }
        at
    }

    /// The path of a value as people read it, and the value with its key.
    fn locate<'n>(&self, root: &'n Node, pointer: &str) -> (String, Found<'n>) {
        let mut path = self.path.to_owned();
        let mut found = Found { node: root, entry: None, owner: None };
        for step in pointer.split('/').skip(1) {
            let step = unescaped(step);
            let next = match &found.node.value {
                Content::List(items) => {
                    let _never_fails = write!(path, "[{step}]");
                    let item = step.parse::<usize>().ok().and_then(|index| items.get(index));
                    item.map(|node| Found { node, entry: found.entry, owner: None })
                }
                _ => found.node.entry(&step).map(|entry| {
                    path = below(&path, entry.written());
                    Found { node: &entry.node, entry: Some(entry), owner: Some(entry) }
                }),
            };
            match next {
                Some(next) => found = next,
                None => break,
            }
        }
        (path, found)
    }
}

/// A value that does not fit.
struct Found<'a> {
    node: &'a Node,
    /// The field that it is, or that it is an item of.
    entry: Option<&'a Entry>,
    /// The field that it is.
    owner: Option<&'a Entry>,
}

impl Found<'_> {
    /// Where to point for the value itself: its key, where the value is long.
    fn value_span(&self) -> Span {
        match (&self.node.value, self.owner) {
            (Content::Table(_), Some(owner)) => owner.key_span,
            _ => self.node.span,
        }
    }

    /// Where to point for something that it lacks.
    fn owner_span(&self) -> Span {
        match self.owner {
            Some(owner) => owner.key_span,
            None => self.node.span.begin(),
        }
    }
}

fn node_mut<'a>(root: &'a mut Node, pointer: &str) -> Option<&'a mut Node> {
    pointer.split('/').skip(1).try_fold(root, |node, step| {
        let step = unescaped(step);
        match &mut node.value {
            Content::List(items) => items.get_mut(step.parse::<usize>().ok()?),
            Content::Table(entries) => {
                entries.iter_mut().find(|entry| entry.key == step).map(|entry| &mut entry.node)
            }
            _ => None,
        }
    })
}

/// Source: RFC 6901, §4.
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn out_of_range(value: &str, schema: &Value) -> String {
    let limit = |keyword: &str| schema.get(keyword).map(Value::to_string);
    let whole = |limit: String| limit.strip_suffix(".0").map(str::to_owned).unwrap_or(limit);
    match (limit("minimum").map(whole), limit("maximum").map(whole)) {
        (Some(min), Some(max)) => format!("{value} is not in {min}..={max}"),
        (Some(min), None) => format!("{value} is less than {min}"),
        (None, Some(max)) => format!("{value} is more than {max}"),
        (None, None) => format!("{value} is out of range"),
    }
}

/// What a schema expects, in words.
fn kinds(types: Option<&Value>) -> String {
    let word = |kind: &Value| match kind.as_str().unwrap_or_default() {
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a number",
        "boolean" => "a boolean",
        "array" => "an array",
        "object" => "an object",
        _ => "something else",
    };
    match types {
        Some(Value::Array(kinds)) => kinds.iter().map(word).collect::<Vec<_>>().join(" or "),
        Some(kind) => word(kind).to_owned(),
        None => "something else".to_owned(),
    }
}

/// How a value becomes one of the type that is expected.
fn retyped(node: &Node, expected: Option<&Value>) -> Option<String> {
    let expected = expected?.as_str()?;
    let help = match (&node.value, expected) {
        (Content::Number(_) | Content::Bool(_), "string") => "put it in quotes",
        (Content::Text(text), _) if text.is_empty() => "null is the default",
        (Content::Text(text), _) => return text_retyped(text, node.form, expected),
        (Content::Table(_), "array") => "put it in [ ]",
        _ => return None,
    };
    Some(help.to_owned())
}

/// How a text becomes a value of the type that is expected.
fn text_retyped(text: &str, form: Form, expected: &str) -> Option<String> {
    let is_number = text.parse::<f64>().is_ok();
    let begins_as = |sign: char| text.trim_start().starts_with(sign);
    let is_json_of =
        matches!(expected, "array" if begins_as('[')) || matches!(expected, "object" if begins_as('{'));
    let help = match (form, expected) {
        // A text is all that a text with variables can be; only a layer's own variable is read as JSON.
        (Form::Filled, _) => {
            "${…} makes a text and nothing else; set the whole value by --set or APLOMB_CONFIG__…"
        }
        (Form::Bare, _) if is_json_of => {
            return serde_json::from_str::<IgnoredAny>(text).err().map(|error| torn(text, &error));
        }
        (Form::Bare, "integer" | "number") if is_number => {
            "JSON has no such number: no 0 and no + come first, and digits are on both sides of a point"
        }
        (Form::Bare, "boolean") => "write true or false",
        (Form::Bare, "array") => "write it as JSON, such as [\"…\"]",
        (Form::Bare, "object") => "write it as JSON, such as {\"…\": …}",
        (Form::Written, "integer" | "number") if is_number => "write it without quotes",
        (Form::Written, "boolean") => "write true or false, without quotes",
        (Form::Written, _) if is_json_of => "write it without quotes",
        (Form::Written, "array") => "put it in [ ]",
        _ => return None,
    };
    Some(help.to_owned())
}

/// Where a text stops being JSON, without anything of the text.
fn torn(text: &str, error: &serde_json::Error) -> String {
    let line_start =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let before = text.get(..line_start + error.column().saturating_sub(1));
    let character = before.map_or(error.column(), |before| before.chars().count() + 1);
    if error.is_eof() {
        return "it is no JSON: it ends too early".to_owned();
    }
    let what = error.to_string();
    // It would name what it takes a word for by its first letter.
    let what = what.split(" at line ").next().unwrap_or_default().replace("expected ident", "expected value");
    format!("it is no JSON from character {character} on: {what}")
}

/// The code of what does not fit the document's own schema.
pub(super) const DOCUMENT: Code = codes::CONFIG_VALIDATION;
