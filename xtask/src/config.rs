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
         environment.\n\nOver the file go environment variables, over both flags; `aplomb config show --provenance` says where \
         each value comes from:\n\n```sh\nAPLOMB_CONFIG__AGENTS__ASSISTANT__LLM__MODEL=gpt-4o aplomb run agent.json\naplomb run \
         agent.json --set agents.assistant.llm.model=gpt-4o --set session.lock_timeout_ms=5000\n```\n\nAn item of a list goes \
         by its `id` or its place (`agents.0`, `agents[0]`, `APLOMB_CONFIG__AGENTS__0`); in a variable, what is neither a \
         letter nor a digit in an id is an underscore. A value is JSON, or else a text. An override makes no item of a list: \
         set the whole list, as JSON. The rules are in [the specification](spec/runtime.md), §5.\n\n{}",
        config::reference()
    )
}
