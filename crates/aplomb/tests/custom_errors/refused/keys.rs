#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent", retriable = true)]
#[error("unknown")]
struct Unknown;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", code = "billing.refused", parent = "tool.permanent")]
#[error("twice")]
struct Twice;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent", retryable = "yes")]
#[error("wrong value")]
struct WrongValue;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = 3)]
#[error("wrong parent")]
struct WrongParent;

fn main() {}
