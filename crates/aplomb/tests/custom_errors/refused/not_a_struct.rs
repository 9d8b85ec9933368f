#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("declined")]
enum Declined {
    Card,
}

fn main() {}
