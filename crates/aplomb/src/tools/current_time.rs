//! `current_time`: what time it is.

use aplomb_core::error::{Error, codes};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Tool, ToolContext};

/// Tells the time, in a time zone if one is named.
#[derive(Debug, Clone, Copy, Default)]
pub struct CurrentTime;

impl Tool for CurrentTime {
    fn description(&self) -> &str {
        "Tells the current date and time, in UTC or in the IANA time zone that is named."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"timezone": {"type": "string", "description": "An IANA name, such as Europe/Berlin"}},
            "additionalProperties": false
        })
    }

    fn idempotent(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value, context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(async move {
            let zone = arguments.get("timezone").and_then(Value::as_str).unwrap_or("UTC");
            tell(context.now_ms, zone)
        })
    }
}

fn tell(now_ms: u64, zone: &str) -> Result<Value, Error> {
    let out_of_range =
        |error| Error::new(codes::TOOL_ERROR, "the clock is out of range").with_foreign_cause(error);
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let now = Timestamp::from_millisecond(now_ms).map_err(out_of_range)?;
    let local = now.in_tz(zone).map_err(|error| {
        Error::new(codes::TOOL_VALIDATION, format!("no time zone is called {zone:?}"))
            .with_hint("use an IANA name, such as Europe/Berlin")
            .with_foreign_cause(error)
    })?;
    Ok(json!({
        "time": local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "timezone": zone,
        "weekday": local.strftime("%A").to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2026-11-30T12:00:00Z, a Monday.
    const NOON_MS: u64 = 1_796_040_000_000;

    #[test]
    fn the_time_is_told_in_the_zone_that_is_asked_for() {
        assert_eq!(
            tell(NOON_MS, "UTC").unwrap(),
            json!({"time": "2026-11-30T12:00:00+00:00", "timezone": "UTC", "weekday": "Monday"})
        );
        assert_eq!(tell(NOON_MS, "Asia/Tokyo").unwrap()["time"], "2026-11-30T21:00:00+09:00");
    }

    #[test]
    fn a_zone_that_does_not_exist_is_refused() {
        assert_eq!(tell(NOON_MS, "Mars/Olympus").unwrap_err().code(), codes::TOOL_VALIDATION);
    }
}
