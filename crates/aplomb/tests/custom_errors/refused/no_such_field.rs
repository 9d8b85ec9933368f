#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent")]
#[error("card {last5} was declined")]
struct Declined {
    last4: String,
}

fn main() {}
