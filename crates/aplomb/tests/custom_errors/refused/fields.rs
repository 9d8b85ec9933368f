#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("unnamed")]
struct Unnamed(#[context] u8);

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("two sources")]
struct TwoSources {
    #[source]
    one: std::io::Error,
    #[source]
    other: std::io::Error,
}

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("arguments")]
struct Arguments {
    #[context(name = "other")]
    field: u8,
}

fn main() {}
