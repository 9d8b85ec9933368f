//! `aplomb init`: a folder with a config to begin with. Overwrites nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use aplomb::{Error, codes, config};
use serde_json::json;

use crate::args::{InitArguments, ReportFormat, Template};
use crate::report::{self, Report};

const MINIMAL: &str = include_str!("../templates/minimal.json");
const TOOLS: &str = include_str!("../templates/tools.json");
const MULTI_PROVIDER: &str = include_str!("../templates/multi-provider.json");

/// What the templates call the schema that is written next to them.
const SCHEMA: &str = "agent.schema.json";

pub(crate) fn init(arguments: &InitArguments) -> u8 {
    report::give_as(arguments.format, write(arguments))
}

fn write(arguments: &InitArguments) -> Result<Report, Error> {
    let folder = &arguments.folder;
    let (text, agent) = match arguments.template {
        Template::Minimal => (MINIMAL, ""),
        Template::Tools => (TOOLS, ""),
        Template::MultiProvider => (MULTI_PROVIDER, " --agent scripted"),
    };
    let file = folder.join("agent.json");
    let schema = format!("{:#}\n", config::schema());
    // Nothing is written where one of them is in the way.
    for there in [&file, &folder.join(SCHEMA)] {
        if there.try_exists().unwrap_or(true) {
            return Err(in_the_way(there));
        }
    }
    fs::create_dir_all(folder).map_err(|error| unwritten(folder, error))?;
    for (file, text) in [(&file, text), (&folder.join(SCHEMA), &schema)] {
        create(file, text).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => in_the_way(file),
            _ => unwritten(file, error),
        })?;
    }
    let name = file.display();
    Ok(match arguments.format {
        ReportFormat::Json => Report::json(&json!({"file": name.to_string(), "schema": folder.join(SCHEMA)})),
        ReportFormat::Text => Report::data(format!(
            "{name} is written. Next:\n  aplomb validate {name}\n  aplomb run {name}{agent} --input \"What is 9 * 9?\"\n"
        )),
    })
}

/// Writes a new file; also against whoever else writes it at the same time.
fn create(file: &Path, text: &str) -> io::Result<()> {
    File::create_new(file)?.write_all(text.as_bytes())
}

fn in_the_way(file: &Path) -> Error {
    Error::new(
        codes::USER_INVALID_INPUT,
        format!("{} is there already, and is left as it is", file.display()),
    )
    .with_hint("give another folder, or move the file away")
}

fn unwritten(file: &Path, error: io::Error) -> Error {
    Error::new(codes::USER_INVALID_INPUT, format!("cannot write {}: {error}", file.display()))
        .with_foreign_cause(error)
}
