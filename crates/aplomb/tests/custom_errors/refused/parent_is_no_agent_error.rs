struct Other;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = Other)]
#[error("declined")]
struct Declined;

fn main() {}
