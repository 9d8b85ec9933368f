#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "Billing.declined", parent = "tool.permanent")]
#[error("capital")]
struct Capital;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "declined", parent = "tool.permanent")]
#[error("one word")]
struct OneWord;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.", parent = "tool.permanent")]
#[error("empty word")]
struct EmptyWord;

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.3d", parent = "tool.permanent")]
#[error("digit first")]
struct DigitFirst;

fn main() {}
