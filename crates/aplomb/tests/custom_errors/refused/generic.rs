#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("declined")]
struct Declined<T>(T);

fn main() {}
