//! `calc`: arithmetic.

use std::sync::atomic::{AtomicU32, Ordering};

use aplomb_core::error::{Error, codes};
use fend_core::{Context, Interrupt};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Tool, ToolContext, text_argument};

/// Evaluates an arithmetic expression, exactly where it can be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calc;

impl Tool for Calc {
    fn description(&self) -> &str {
        "Evaluates an arithmetic expression, such as (2 + 3) * 4 ^ 2. Knows + - * / ^ %, parentheses, pi, and \
         functions such as sqrt, sin (of radians), ln and log10."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "The expression"}},
            "required": ["expression"],
            "additionalProperties": false
        })
    }

    fn idempotent(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(async move { evaluate(text_argument(&arguments, "expression")?) })
    }
}

/// How often the evaluator asks whether to go on before it is told not to. Counted and not timed, so that the same
/// expression always ends the same way.
const STEPS: u32 = 1_000_000;

#[derive(Default)]
struct StepLimit(AtomicU32);

impl Interrupt for StepLimit {
    fn should_interrupt(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > STEPS
    }
}

fn evaluate(expression: &str) -> Result<Value, Error> {
    let refuse =
        |why: &str| Error::new(codes::TOOL_VALIDATION, format!("cannot evaluate {expression:?}: {why}"));
    let result = fend_core::evaluate_with_interrupt(expression, &mut Context::new(), &StepLimit::default())
        .map_err(|why| refuse(&why))?;
    // What cannot be written exactly is marked so, and is a double to everybody else.
    let text = result.get_main_result();
    let text = text.strip_prefix("approx. ").unwrap_or(text);
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(json!(whole));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && text.len() <= 17 => Ok(json!(number)),
        _ if text.is_empty() || text == "()" => Err(refuse("there is nothing to evaluate")),
        // More digits than a double holds, or a quantity with a unit.
        _ => Ok(json!(text)),
    }
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
            ("0.1 + 0.2", json!(0.3)),
            ("-3 - -4", json!(1)),
            ("-2 ^ 2", json!(-4)),
            ("2 ^ 3 ^ 2", json!(512)),
            ("sqrt(16)", json!(4)),
            ("log10(1000)", json!(3)),
            ("1e3 + 1", json!(1001)),
            ("2 ^ 100", json!("1267650600228229401496703205376")),
        ] {
            assert_eq!(evaluate(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused_with_a_reason() {
        for expression in ["", "1 / 0", "nonsense", "2 +", "x + 1", "system('ls')", "9 ^ 9 ^ 9 ^ 9"] {
            let error = evaluate(expression).unwrap_err();
            assert_eq!(error.code(), codes::TOOL_VALIDATION, "{expression}");
            assert!(error.message().contains("cannot evaluate"), "{error}");
        }
    }
}
