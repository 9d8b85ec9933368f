#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.pemanent")]
#[error("declined")]
struct Declined;

fn main() {}
