//! Asks one model one question, with the tool `calc` at hand, and says what came: a way to look at a vendor.
//!
//! Usage: `cargo run -p aplomb-llm --example ask -- VENDOR MODEL QUESTION [--responses] [--base URL] [--plain]`; the key is
//! taken from the vendor's own variable.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::sync::Arc;

use aplomb_core::message::{Block, Delta, Message, Role, ToolResult};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::vendors::{self, ApiStyle, Wanted};
use aplomb_llm::{Model, ModelRequest, StreamMode};
use secrecy::SecretString;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, model, question, options @ ..] = args.as_slice() else {
        return Err("VENDOR MODEL QUESTION [--responses] [--base URL] [--plain]".into());
    };
    let vendor = vendors::find(name).ok_or("no such vendor")?;
    let mut wanted = Wanted { model: model.clone(), ..Wanted::default() };
    wanted.style = options.iter().any(|option| option == "--responses").then_some(ApiStyle::Responses);
    wanted.api_base = options.iter().skip_while(|option| *option != "--base").nth(1).cloned();
    let key = vendor.key_variable.and_then(|variable| std::env::var(variable).ok());
    wanted.api_key = key.map(SecretString::from);
    let mut config = vendor.model(wanted)?;
    if options.iter().any(|option| option == "--plain") {
        config.stream = StreamMode::Never;
    }
    let model = Model::new(config)?;
    let tools = [ToolSpec {
        id: "calc".to_owned(),
        description: "Multiplies two numbers.".to_owned(),
        parameters: serde_json::json!({
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        }),
        idempotent: true,
    }];
    let mut messages = vec![Arc::new(Message::text(Role::User, question.as_str()))];
    loop {
        let mut show = |delta: &Delta| println!("{delta:?}");
        let request = ModelRequest { run_id: "ask", messages: &messages, tools: &tools, output: None };
        let answer =
            model.ask(request, Some(&mut show)).await.map_err(|failed| format!("{:#?}", failed.failure))?;
        println!("{:?} {:?}", answer.reply.finish, answer.reply.usage);
        let mut message = answer.reply.message;
        // Providers that give their calls no names leave that to whoever runs them.
        for (index, call) in message.tool_calls_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{index}");
            }
        }
        let results: Vec<_> =
            message.tool_calls().map(|call| result(call.id.clone(), &call.arguments)).collect();
        messages.push(Arc::new(message));
        if results.is_empty() {
            return Ok(());
        }
        messages.push(Arc::new(Message { role: Role::Tool, content: results }));
    }
}

fn result(call_id: String, arguments: &str) -> Block {
    let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let number = |name: &str| arguments.get(name).and_then(serde_json::Value::as_f64);
    let product = number("a").zip(number("b")).map(|(a, b)| (a * b).to_string());
    let is_error = product.is_none();
    let text = product.unwrap_or_else(|| "a and b must be numbers".to_owned());
    Block::ToolResult(ToolResult { call_id, name: "calc".to_owned(), text, is_error })
}
