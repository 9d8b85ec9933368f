#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined")]
#[error("no parent")]
struct NoParent;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(parent = "tool.error")]
#[error("no code")]
struct NoCode;

#[derive(Debug, aplomb::AgentError)]
#[error("nothing")]
struct Nothing;

fn main() {}
