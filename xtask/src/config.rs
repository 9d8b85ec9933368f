//! What is derived from the config's types: the published schema, and the reference of its keys.

use aplomb::config;

/// `schema/agent.schema.json`.
pub(crate) fn schema() -> String {
    format!("{:#}\n", config::schema())
}

/// `docs/config.md`.
pub(crate) fn reference(note: &str) -> String {
    format!(
        "# Config\n\n{note}A config is JSON (with comments), YAML or TOML of one shape. `aplomb validate` says everything that is \
         wrong with one at once, `aplomb schema` prints the [schema](../schema/agent.schema.json) that editors use, `aplomb \
         list-plugins` what `type` can name, and `aplomb schema --plugin NAME` what a plugin's `config` takes. `null` \
         stands for the default. `${{VARIABLE}}` and `${{VARIABLE:-default}}` in a string are replaced from the \
         environment.\n\n{}",
        config::reference()
    )
}
