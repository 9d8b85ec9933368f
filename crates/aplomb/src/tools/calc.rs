//! `calc`: arithmetic.

use aplomb_core::error::{Error, codes};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Tool, ToolContext, text_argument};

/// Evaluates an arithmetic expression in double precision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calc;

impl Tool for Calc {
    fn description(&self) -> &str {
        "Evaluates an arithmetic expression, such as (2 + 3) * 4 ^ 2. Knows + - * / ^, parentheses, and functions \
         such as sqrt, sin, ln."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "The expression"}},
            "required": ["expression"],
            "additionalProperties": false
        })
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(async move { evaluate(text_argument(&arguments, "expression")?) })
    }
}

fn evaluate(expression: &str) -> Result<Value, Error> {
    let refuse =
        |why: String| Error::new(codes::TOOL_VALIDATION, format!("cannot evaluate {expression:?}: {why}"));
    let result = exmex::eval_str::<f64>(expression).map_err(|error| refuse(error.to_string()))?;
    if !result.is_finite() {
        return Err(refuse("the result is not a finite number".to_owned()));
    }
    // Whole numbers read as such, as far as doubles count in ones.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    Ok(if result.fract() == 0.0 && result.abs() <= EXACT { json!(result as i64) } else { json!(result) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_right() {
        for (expression, expected) in [
            ("9 * 9", json!(81)),
            ("9*9", json!(81)),
            ("(2 + 3) * 4 ^ 2", json!(80)),
            ("1 / 8", json!(0.125)),
            ("-3 - -4", json!(1)),
            ("sqrt(16)", json!(4)),
        ] {
            assert_eq!(evaluate(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused_with_a_reason() {
        for expression in ["", "1 / 0", "nonsense", "2 +", "x + 1", "system('ls')"] {
            let error = evaluate(expression).unwrap_err();
            assert_eq!(error.code(), codes::TOOL_VALIDATION, "{expression}");
            assert!(error.message().contains("cannot evaluate"), "{error}");
        }
    }
}
