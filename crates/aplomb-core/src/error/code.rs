//! The code table: one row per code, and everything about a code follows from its row.

use std::fmt;

use crate::run::StopReason;

/// A stable error code, such as `llm.connection`.
///
/// Codes form a tree: `tool.timeout` is a `tool.retryable` is a `tool.error`. Handle a parent and you handle all below
/// it; see [`Code::is_a`].
#[derive(Clone, Copy)]
pub struct Code(&'static Row);

struct Row {
    code: &'static str,
    parent: Option<Code>,
    retryable: bool,
    stop_reason: StopReason,
    type_name: &'static str,
    fields: &'static [&'static str],
}

impl Code {
    /// The code as users program against it.
    pub fn as_str(self) -> &'static str {
        self.0.code
    }

    /// The name in the documentation, such as `LLMConnectionError`.
    pub fn type_name(self) -> &'static str {
        self.0.type_name
    }

    /// The code that this one is a kind of; `None` for the base of all.
    pub fn parent(self) -> Option<Code> {
        self.0.parent
    }

    /// Whether an error of this code may pass when the same thing is tried again.
    pub fn retryable(self) -> bool {
        self.0.retryable
    }

    /// How a run ends that this error ends.
    pub fn stop_reason(self) -> StopReason {
        self.0.stop_reason
    }

    /// The context fields that errors of this code carry beyond the identifiers, inherited ones first.
    pub fn fields(self) -> Vec<&'static str> {
        let mut fields = self.parent().map(Code::fields).unwrap_or_default();
        fields.extend(self.0.fields);
        fields
    }

    /// True for the code itself and for every code above it.
    ///
    /// ```
    /// use aplomb_core::error::codes;
    /// assert!(codes::TOOL_TIMEOUT.is_a(codes::TOOL_ERROR));
    /// assert!(!codes::TOOL_ERROR.is_a(codes::TOOL_TIMEOUT));
    /// ```
    pub fn is_a(self, ancestor: Code) -> bool {
        self == ancestor || self.parent().is_some_and(|parent| parent.is_a(ancestor))
    }

    /// The code of that name.
    pub fn find(name: &str) -> Option<Code> {
        codes::ALL.iter().copied().find(|code| code.as_str() == name)
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Code) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Code {}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! codes {
    ($($name:ident: $code:literal, $parent:expr, $retryable:ident, $stop:ident, $type_name:literal, [$($field:literal),*];)*) => {
        /// Every code of the contract, as a constant.
        pub mod codes {
            use super::{Code, Row, StopReason};

            $(
                #[doc = concat!("`", $code, "`, in the documentation `", $type_name, "`.")]
                pub const $name: Code = Code(&Row {
                    code: $code,
                    parent: $parent,
                    retryable: retryable!($retryable),
                    stop_reason: StopReason::$stop,
                    type_name: $type_name,
                    fields: &[$($field),*],
                });
            )*

            /// All codes, parents before children.
            pub const ALL: &[Code] = &[$($name),*];
        }
    };
}

macro_rules! retryable {
    (yes) => {
        true
    };
    (no) => {
        false
    };
}

codes! {
    // constant                    code                          parent                   retryable stop       type name                [extra fields]
    OPENAGENTS_ERROR:              "openagents.error",           None,                    no,  Failed,          "OpenAgentsError",       [];
    CONFIG_ERROR:                  "config.error",               Some(OPENAGENTS_ERROR),  no,  Failed,          "ConfigError",           [];
    CONFIG_LOAD:                   "config.load",                Some(CONFIG_ERROR),      no,  Failed,          "ConfigLoadError",       [];
    CONFIG_VALIDATION:             "config.validation",          Some(CONFIG_ERROR),      no,  Failed,          "ConfigValidationError", [];
    PLUGIN_ERROR:                  "plugin.error",               Some(OPENAGENTS_ERROR),  no,  Failed,          "PluginError",           [];
    PLUGIN_LOAD:                   "plugin.load",                Some(PLUGIN_ERROR),      no,  Failed,          "PluginLoadError",       [];
    PLUGIN_CAPABILITY:             "plugin.capability",          Some(PLUGIN_ERROR),      no,  Failed,          "PluginCapabilityError", [];
    PLUGIN_CONFIG:                 "plugin.config",              Some(PLUGIN_ERROR),      no,  Failed,          "PluginConfigError",     [];
    EXECUTION_ERROR:               "execution.error",            Some(OPENAGENTS_ERROR),  no,  Failed,          "ExecutionError",        [];
    EXECUTION_MAX_STEPS:           "execution.max_steps",        Some(EXECUTION_ERROR),   no,  MaxSteps,        "MaxStepsExceeded",      [];
    EXECUTION_BUDGET_EXHAUSTED:    "execution.budget_exhausted", Some(EXECUTION_ERROR),   no,  BudgetExhausted, "BudgetExhausted",       ["kind", "current", "limit"];
    EXECUTION_OUTPUT_VALIDATION:   "execution.output_validation", Some(EXECUTION_ERROR),  no,  Failed,          "OutputValidationError", ["attempts", "last_validation_error", "output_type"];
    SESSION_ERROR:                 "session.error",              Some(EXECUTION_ERROR),   no,  Failed,          "SessionError",          [];
    PATTERN_ERROR:                 "pattern.error",              Some(EXECUTION_ERROR),   no,  Failed,          "PatternError",          [];
    TOOL_ERROR:                    "tool.error",                 Some(OPENAGENTS_ERROR),  no,  Failed,          "ToolError",             ["tool_name"];
    TOOL_RETRYABLE:                "tool.retryable",             Some(TOOL_ERROR),        yes, Failed,          "RetryableToolError",    [];
    TOOL_PERMANENT:                "tool.permanent",             Some(TOOL_ERROR),        no,  Failed,          "PermanentToolError",    [];
    TOOL_TIMEOUT:                  "tool.timeout",               Some(TOOL_RETRYABLE),    yes, Failed,          "ToolTimeoutError",      [];
    TOOL_RATE_LIMIT:               "tool.rate_limit",            Some(TOOL_RETRYABLE),    yes, Failed,          "ToolRateLimitError",    ["retry_after_ms"];
    TOOL_UNAVAILABLE:              "tool.unavailable",           Some(TOOL_RETRYABLE),    yes, Failed,          "ToolUnavailableError",  [];
    TOOL_NOT_FOUND:                "tool.not_found",             Some(TOOL_PERMANENT),    no,  Failed,          "ToolNotFoundError",     [];
    TOOL_VALIDATION:               "tool.validation",            Some(TOOL_PERMANENT),    no,  Failed,          "ToolValidationError",   [];
    TOOL_AUTH:                     "tool.auth",                  Some(TOOL_PERMANENT),    no,  Failed,          "ToolAuthError",         [];
    TOOL_CANCELLED:                "tool.cancelled",             Some(TOOL_PERMANENT),    no,  Failed,          "ToolCancelledError",    [];
    LLM_ERROR:                     "llm.error",                  Some(OPENAGENTS_ERROR),  no,  Failed,          "LLMError",              [];
    LLM_CONNECTION:                "llm.connection",             Some(LLM_ERROR),         yes, Failed,          "LLMConnectionError",    [];
    LLM_RATE_LIMIT:                "llm.rate_limit",             Some(LLM_ERROR),         yes, Failed,          "LLMRateLimitError",     ["retry_after_ms"];
    LLM_RESPONSE:                  "llm.response",               Some(LLM_ERROR),         no,  Failed,          "LLMResponseError",      [];
    LLM_MODEL_RETRY:               "llm.model_retry",            Some(LLM_ERROR),         no,  Failed,          "ModelRetryError",       ["validation_error"];
    USER_ERROR:                    "user.error",                 Some(OPENAGENTS_ERROR),  no,  Failed,          "UserError",             [];
    USER_INVALID_INPUT:            "user.invalid_input",         Some(USER_ERROR),        no,  Failed,          "InvalidInputError",     [];
    USER_AGENT_NOT_FOUND:          "user.agent_not_found",       Some(USER_ERROR),        no,  Failed,          "AgentNotFoundError",    [];
    // Aplomb's own.
    EXECUTION_TIMEOUT:             "execution.timeout",          Some(EXECUTION_ERROR),   no,  Timeout,         "RunTimeout",            ["limit_ms", "where", "setting"];
    EXECUTION_CANCELLED:           "execution.cancelled",        Some(EXECUTION_ERROR),   no,  Cancelled,       "RunCancelled",          ["by"];
    EXECUTION_IN_DOUBT:            "execution.in_doubt",         Some(EXECUTION_ERROR),   no,  Failed,          "OutcomeInDoubt",        ["call_id", "tool_id", "idempotency_key"];
    EXECUTION_JOURNAL_MISMATCH:    "execution.journal_mismatch", Some(EXECUTION_ERROR),   no,  Failed,          "JournalMismatch",       ["record", "expected", "found"];
    SESSION_LEASE_LOST:            "session.lease_lost",         Some(SESSION_ERROR),     no,  Failed,          "LeaseLost",             ["holder"];
}
