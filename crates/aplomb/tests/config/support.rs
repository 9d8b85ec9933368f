//! Configs to begin with.

use aplomb::config::{Format, Loader};
use aplomb::{Error, Runtime};

/// A config that is right.
pub(crate) const RIGHT: &str = r#"{
  "version": "1.0",
  "agents": [
    {
      "id": "assistant",
      "memory": { "type": "buffer" },
      "pattern": { "type": "react", "config": { "system_prompt": "Be brief." } },
      "llm": {
        "provider": "openai_compatible",
        "model": "m",
        "api_base": "http://127.0.0.1:1/v1",
        "retry": { "max_attempts": 3 }
      },
      "tools": [{ "id": "calc", "type": "calc" }]
    }
  ]
}
"#;

/// The right one, but for what is replaced.
#[track_caller]
pub(crate) fn but(from: &str, to: &str) -> String {
    assert_eq!(RIGHT.matches(from).count(), 1, "{from}");
    RIGHT.replace(from, to)
}

/// Reads a config, and makes a runtime of it.
pub(crate) fn load(text: &str, format: Format) -> Result<Runtime, Error> {
    let name = match format {
        Format::Json => "agent.json",
        Format::Yaml => "agent.yaml",
        _ => "agent.toml",
    };
    Runtime::builder(Loader::text(text, name, format).load()?).build()
}

/// What is said of a config that is wrong.
#[track_caller]
pub(crate) fn refused(text: &str, format: Format) -> Error {
    match load(text, format) {
        Ok(_) => panic!("this is taken: {text}"),
        Err(error) => error,
    }
}
