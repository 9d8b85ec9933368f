#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("card {} was declined", self.0)]
struct Arguments(u8);

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error(transparent)]
struct Transparent(u8);

fn main() {}
