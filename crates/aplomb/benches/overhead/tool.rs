//! The tool of both sides. It does next to nothing: what a tool does is no cost of whoever calls it.

use aplomb::tools::{Tool, ToolContext};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

/// Multiplies two whole numbers, such as `9*9`.
pub(super) struct Product;

impl Product {
    pub(super) fn multiply(arguments: &Value) -> Value {
        let factors = arguments["expression"].as_str().unwrap().split_once('*').unwrap();
        json!(factors.0.parse::<u64>().unwrap() * factors.1.parse::<u64>().unwrap())
    }
}

impl Tool for Product {
    fn description(&self) -> &str {
        "Multiplies two whole numbers"
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "The numbers, such as 9*9"}},
            "required": ["expression"],
            "additionalProperties": false
        })
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, aplomb::Error>> {
        Box::pin(async move { Ok(Product::multiply(&arguments)) })
    }
}
