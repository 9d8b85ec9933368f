//! `aplomb schema` and `aplomb list-plugins`: what a config can say and name.

use std::fmt::Write;

use aplomb::near::did_you_mean;
use aplomb::plugins::{Origin, PluginInfo, Registry, Seam};
use aplomb::{Error, codes, config};
use serde_json::json;

use crate::args::{ListArguments, ReportFormat, SchemaArguments};
use crate::output::for_terminal;
use crate::report::{self, Report};

pub(crate) fn schema(arguments: &SchemaArguments, registry: &Registry) -> u8 {
    report::give_as(arguments.format, schema_of(arguments, registry))
}

fn schema_of(arguments: &SchemaArguments, registry: &Registry) -> Result<Report, Error> {
    let Some(name) = &arguments.plugin else { return Ok(Report::json(&config::schema())) };
    let seam = arguments.seam.as_deref().map(seam).transpose()?;
    let all = registry.list();
    let of_seam: Vec<_> = all.iter().filter(|plugin| seam.is_none_or(|seam| plugin.seam == seam)).collect();
    let called: Vec<_> = of_seam.iter().filter(|plugin| plugin.name == *name).collect();
    match called.as_slice() {
        [] => {
            let hint = did_you_mean(name, of_seam.iter().map(|plugin| plugin.name.as_str()));
            Err(Error::new(codes::PLUGIN_LOAD, format!("no plugin is called {name:?}"))
                .with_hint(hint.unwrap_or_else(|| "`aplomb list-plugins` lists them".to_owned())))
        }
        [PluginInfo { config: Some(schema), .. }] => Ok(Report::json(schema)),
        [plugin] => {
            let what = match plugin.origin {
                Origin::Pending => "is not there yet",
                _ => "has no config of its own; see `llm` in `aplomb schema`",
            };
            Err(Error::new(codes::PLUGIN_LOAD, format!("{} {name:?} {what}", plugin.seam))
                .with_hint("`aplomb list-plugins` lists what can be used"))
        }
        several => {
            let seams: Vec<_> = several.iter().map(|plugin| plugin.seam.as_str()).collect();
            Err(Error::new(codes::USER_INVALID_INPUT, format!("several plugins are called {name:?}"))
                .with_hint(format!("choose one with --seam: {}", seams.join(", "))))
        }
    }
}

pub(crate) fn list(arguments: &ListArguments, registry: &Registry) -> u8 {
    report::give_as(arguments.format, listed(arguments, registry))
}

fn listed(arguments: &ListArguments, registry: &Registry) -> Result<Report, Error> {
    let only = arguments.seam.as_deref().map(seam).transpose()?;
    let mut all = registry.list();
    all.retain(|plugin| only.is_none_or(|seam| plugin.seam == seam));
    if arguments.format == ReportFormat::Json {
        return Ok(Report::json(&json!(all)));
    }
    let mut text = String::new();
    for seam in Seam::ALL {
        let of_seam: Vec<_> = all.iter().filter(|plugin| plugin.seam == seam).collect();
        if of_seam.is_empty() {
            continue;
        }
        let _never_fails = writeln!(text, "{seam}");
        for plugin in of_seam {
            let origin = match plugin.origin {
                Origin::BuiltIn => "built in",
                Origin::Program => "this program's",
                _ => "later",
            };
            let summary = for_terminal(&plugin.summary);
            let line = format!("  {:22} {origin:15} {summary}", plugin.name);
            let _never_fails = writeln!(text, "{}", line.trim_end());
        }
    }
    Ok(Report::data(text))
}

fn seam(name: &str) -> Result<Seam, Error> {
    let names = || Seam::ALL.iter().map(|seam| seam.as_str());
    Seam::ALL.iter().find(|seam| seam.as_str() == name).copied().ok_or_else(|| {
        let listed = || format!("the seams are {}", names().collect::<Vec<_>>().join(", "));
        Error::new(codes::USER_INVALID_INPUT, format!("no seam is called {name:?}"))
            .with_hint(did_you_mean(name, names()).unwrap_or_else(listed))
    })
}
