//! Finds what a config names, or says why it is not there.

use aplomb_core::error::{Error, codes};
use aplomb_core::near::did_you_mean;

use super::providers::Provider;
use super::registry::{Factory, Make, Part, Plugin};
use super::{Origin, Registry, Seam, is_python, lacking};
use crate::config::PluginConfig;

/// A selector, `type` or `impl`, and what it names.
pub(crate) type Named<'a> = (&'a str, &'a str);

/// A name that is no plugin's.
pub(crate) struct Unknown {
    before: String,
    after: String,
    pub(crate) meant: Option<String>,
    pub(crate) help: String,
}

impl Unknown {
    pub(crate) fn what(&self, name: &str) -> String {
        format!("{} {name}{}", self.before, self.after)
    }
}

impl Registry {
    /// The names that `type` can have.
    pub(crate) fn built_in_names(&self, seam: Seam) -> Vec<&str> {
        self.names(seam, Origin::BuiltIn)
    }

    fn names(&self, seam: Seam, origin: Origin) -> Vec<&str> {
        let of_seam = self.plugins.iter().filter(|((of, _), plugin)| *of == seam && plugin.origin == origin);
        of_seam.map(|((_, name), _)| name.as_str()).collect()
    }

    /// The names that `llm.provider` can have.
    pub(crate) fn provider_names(&self) -> Vec<&str> {
        let providers = self.plugins.keys().filter(|(seam, _)| *seam == Seam::Provider);
        providers.map(|(_, name)| name.as_str()).collect()
    }

    /// The provider of that name.
    pub(crate) fn find_provider(&self, name: &str) -> Option<Provider<'_>> {
        let plugin = &**self.plugins.get(&(Seam::Provider, name.to_owned()))?;
        Some(match &plugin.make {
            Make::Script => Provider::Mock,
            Make::Vendor(vendor) => Provider::Vendor(vendor),
            Make::Config(_) => Provider::Service(plugin),
        })
    }

    /// The plugin that a `type` or an `impl` names.
    pub(crate) fn find(&self, seam: Seam, selector: &str, name: &str) -> Result<&Plugin, Unknown> {
        let (wanted, other) = match selector {
            "type" => (Origin::BuiltIn, Origin::Program),
            _ => (Origin::Program, Origin::BuiltIn),
        };
        let found = self.plugins.get(&(seam, name.to_owned()));
        if let Some(plugin) = found.filter(|plugin| plugin.origin == wanted) {
            return Ok(plugin);
        }
        Err(self.unknown(seam, selector, name, found.is_some_and(|plugin| plugin.origin == other)))
    }

    fn unknown(&self, seam: Seam, selector: &str, name: &str, by_the_other: bool) -> Unknown {
        let noun = seam.noun();
        let names = self.names(seam, if selector == "type" { Origin::BuiltIn } else { Origin::Program });
        let known = match (names.as_slice(), selector) {
            ([], "type") => format!("there is no built-in {noun} yet"),
            ([], _) => format!("this program has registered no {noun}"),
            (names, "type") => format!("the built-in ones are {}", names.join(", ")),
            (names, _) => format!("this program has registered {}", names.join(", ")),
        };
        let unknown = |before: String, after: &str, help: String| Unknown {
            before,
            after: after.to_owned(),
            meant: None,
            help,
        };
        if by_the_other {
            return match selector {
                "type" => unknown(format!("the {noun}"), " is this program's own", "write `impl`".to_owned()),
                _ => unknown(format!("the {noun}"), " is built in", "write `type`".to_owned()),
            };
        }
        if let Some((_, _, with)) =
            lacking::PENDING.iter().find(|(of, pending, _)| *of == seam && *pending == name)
        {
            return unknown(
                format!("the {noun}"),
                &format!(" is not there yet; it comes with {with}"),
                known,
            );
        }
        if let Some((_, _, instead)) =
            lacking::LACKING.iter().find(|(of, lacking, _)| *of == seam && *lacking == name)
        {
            return unknown(format!("Aplomb has no {noun}"), "", (*instead).to_owned());
        }
        if selector == "impl" && is_python(name) {
            let help = "put a tool of Python's behind an MCP server; write other parts in Rust, and give them to \
                        aplomb_cli::main_with or Runtime::builder(…).plugins";
            return unknown("this is a path of Python's:".to_owned(), "", help.to_owned());
        }
        let meant = did_you_mean(name, names.iter().copied());
        Unknown { before: format!("no {noun} is called"), after: String::new(), meant, help: known }
    }

    /// Makes a part of its config.
    pub(crate) fn make<P: Part>(
        &self,
        (selector, name): Named<'_>,
        config: &PluginConfig,
    ) -> Result<P, Error> {
        let plugin = self.find(P::SEAM, selector, name).map_err(|unknown| {
            let error = Error::new(codes::PLUGIN_LOAD, unknown.what(&format!("{name:?}")));
            error.with_hint(unknown.meant.unwrap_or(unknown.help))
        })?;
        plugin.make(config)
    }
}

impl Plugin {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes a part of its config.
    pub(crate) fn make<P: Part>(&self, config: &PluginConfig) -> Result<P, Error> {
        let factory = match &self.make {
            Make::Config(factory) => factory.downcast_ref::<Factory<P>>(),
            Make::Vendor(_) | Make::Script => None,
        };
        match factory {
            Some(Factory(make)) => make(config.0.clone().into()),
            None => {
                let message = format!("the plugin {:?} is of another seam", self.name);
                Err(Error::new(codes::PLUGIN_ERROR, message))
            }
        }
    }
}
