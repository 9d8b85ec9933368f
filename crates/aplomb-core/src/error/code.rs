//! The code table: one row per code, and everything about a code follows from its row.

use std::collections::BTreeMap;
use std::fmt;

use super::Error;
use crate::run::StopReason;

/// A stable error code, such as `llm.connection`: a row of the table, or one that a program [declares](Declaration).
///
/// Codes form a tree: `tool.timeout` is a `tool.retryable` is a `tool.error`. Handle a parent and you handle all below
/// it; see [`Code::is_a`].
#[derive(Clone, Copy)]
pub struct Code(&'static Declaration);

/// What a code is. Built-in codes have theirs in the table; a program declares its own with the `AgentError` derive, or
/// by hand:
///
/// ```
/// use aplomb_core::error::{Code, Declaration, codes};
///
/// static DECLINED: Declaration =
///     Declaration::new("billing.declined", codes::TOOL_PERMANENT, "Declined", file!(), line!())
///         .hint("ask for another card");
/// const CODE: Code = Code::declared(&DECLINED);
/// assert!(CODE.is_a(codes::TOOL_ERROR) && !CODE.retryable());
/// ```
#[derive(Clone, Copy)]
pub struct Declaration {
    code: &'static str,
    parent: Option<Code>,
    retryable: bool,
    stop_reason: StopReason,
    type_name: &'static str,
    fields: &'static [&'static str],
    hint: Option<&'static str>,
    docs_url: Option<&'static str>,
    page: Option<&'static str>,
    place: (&'static str, u32),
}

impl Declaration {
    /// A code below `parent`, declared in that file and line. Retryable and the stop reason are the parent's.
    pub const fn new(
        code: &'static str,
        parent: Code,
        type_name: &'static str,
        file: &'static str,
        line: u32,
    ) -> Declaration {
        Declaration {
            code,
            parent: Some(parent),
            retryable: parent.0.retryable,
            stop_reason: parent.0.stop_reason,
            type_name,
            fields: &[],
            hint: None,
            docs_url: None,
            page: None,
            place: (file, line),
        }
    }

    /// Whether the same thing may pass when tried again, where that is not as with the parent.
    #[must_use]
    pub const fn retryable(self, retryable: bool) -> Declaration {
        Declaration { retryable, ..self }
    }

    /// What to do about it, in one line.
    #[must_use]
    pub const fn hint(self, hint: &'static str) -> Declaration {
        Declaration { hint: Some(hint), ..self }
    }

    /// Where the code is documented.
    #[must_use]
    pub const fn docs_url(self, docs_url: &'static str) -> Declaration {
        Declaration { docs_url: Some(docs_url), ..self }
    }

    /// The context fields that its errors carry.
    #[must_use]
    pub const fn fields(self, fields: &'static [&'static str]) -> Declaration {
        Declaration { fields, ..self }
    }
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

    /// What to do about it where the error itself says nothing, in one line.
    pub fn hint(self) -> Option<&'static str> {
        self.0.hint
    }

    /// Where the code is documented: where its declaration says so, or in the repository that this was built from.
    pub fn docs_url(self) -> Option<String> {
        let repository = || {
            let repository =
                option_env!("CARGO_PKG_REPOSITORY").filter(|repository| !repository.is_empty())?;
            self.0.page.map(|_| format!("{repository}/blob/main/docs/errors/{self}.md"))
        };
        self.0.docs_url.map(str::to_owned).or_else(repository)
    }

    /// The code's page of the documentation, in Markdown.
    pub fn page(self) -> Option<&'static str> {
        self.0.page
    }

    /// What happened, in the first sentence of the code's page.
    pub fn summary(self) -> Option<&'static str> {
        self.page()?.lines().skip(1).find(|line| !line.is_empty())
    }

    /// Where the code is declared: file and line.
    pub fn place(self) -> (&'static str, u32) {
        self.0.place
    }

    /// The code of a declaration.
    pub const fn declared(declaration: &'static Declaration) -> Code {
        Code(declaration)
    }

    /// The built-in code of that name, at compile time.
    ///
    /// # Panics
    ///
    /// If there is none: in a constant, the program does not compile.
    pub const fn built_in(name: &str) -> Code {
        match find_built_in(name) {
            Some(code) => code,
            #[expect(clippy::panic, reason = "in a constant a panic is a compile error")]
            None => panic!("no built-in error code has that name"),
        }
    }

    /// Whether a name is a built-in code's, at compile time.
    pub const fn is_built_in(name: &str) -> bool {
        find_built_in(name).is_some()
    }

    /// The code of that name, built in or declared.
    pub fn find(name: &str) -> Option<Code> {
        all().find(|code| code.as_str() == name)
    }

    /// True if the name has the form of a code: two or more words joined by dots, each of lower-case letters, digits and
    /// underscores, and beginning with a letter.
    pub fn is_well_formed(name: &str) -> bool {
        let is_word = |word: &str| {
            word.starts_with(|letter: char| letter.is_ascii_lowercase())
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        name.contains('.') && name.split('.').all(is_word)
    }
}

const fn find_built_in(name: &str) -> Option<Code> {
    let mut index = 0;
    while index < codes::ALL.len() {
        #[expect(clippy::indexing_slicing, reason = "the loop's bound is the length")]
        let code = codes::ALL[index];
        if same(code.0.code.as_bytes(), name.as_bytes()) {
            return Some(code);
        }
        index += 1;
    }
    None
}

/// Byte by byte, since slices cannot be compared in a constant.
const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        #[expect(clippy::indexing_slicing, reason = "the loop's bound is the length of both")]
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
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

/// A code that a program declares. Submitted by the `AgentError` derive, wherever in the program it is used.
pub struct Declared(pub &'static Declaration);

inventory::collect!(Declared);

/// Every code: the built-in ones, parents before children, then those that the program declares.
pub fn all() -> impl Iterator<Item = Code> {
    codes::ALL.iter().copied().chain(inventory::iter::<Declared>().map(|declared| Code(declared.0)))
}

/// Refuses declared codes that are malformed, or that clash with another one. `more` are those that were not submitted.
///
/// # Errors
///
/// `plugin.error`, naming both declarations.
pub fn check_declared(more: &[Code]) -> Result<(), Error> {
    let mut seen = BTreeMap::<&str, Code>::new();
    for code in all().chain(more.iter().copied()) {
        let (file, line) = code.place();
        if !Code::is_well_formed(code.as_str()) {
            let message = format!(
                "{file}:{line} declares error code {:?}, which is not of the form area.name",
                code.as_str()
            );
            return Err(Error::new(codes::PLUGIN_ERROR, message));
        }
        let is_another =
            |other: &Code| (other.place(), other.type_name()) != (code.place(), code.type_name());
        if let Some(other) = seen.insert(code.as_str(), code).filter(is_another) {
            let (other_file, other_line) = other.place();
            let message =
                format!("error code {code} is declared twice: {other_file}:{other_line} and {file}:{line}");
            return Err(Error::new(codes::PLUGIN_ERROR, message).with_hint("rename one of them"));
        }
    }
    Ok(())
}

macro_rules! codes {
    ($($name:ident: $code:literal, $parent:expr, $retryable:ident, $stop:ident, $type_name:literal, [$($field:literal),*]
        $hint:expr;)*) => {
        /// Every code of the contract, as a constant.
        pub mod codes {
            use super::{Code, Declaration, StopReason};

            $(
                #[doc = concat!("`", $code, "`, in the documentation `", $type_name, "`.")]
                pub const $name: Code = Code(&Declaration {
                    code: $code,
                    parent: $parent,
                    retryable: retryable!($retryable),
                    stop_reason: StopReason::$stop,
                    type_name: $type_name,
                    fields: &[$($field),*],
                    hint: $hint,
                    docs_url: None,
                    page: Some(include_str!(concat!("../../../../docs/errors/", $code, ".md"))),
                    place: (file!(), line!()),
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
    //     default hint
    OPENAGENTS_ERROR:              "openagents.error",           None,                    no,  Failed,          "OpenAgentsError",       []
        None;
    CONFIG_ERROR:                  "config.error",               Some(OPENAGENTS_ERROR),  no,  Failed,          "ConfigError",           []
        None;
    CONFIG_LOAD:                   "config.load",                Some(CONFIG_ERROR),      no,  Failed,          "ConfigLoadError",       []
        Some("run from the project's root, or give an absolute path to the config file");
    CONFIG_VALIDATION:             "config.validation",          Some(CONFIG_ERROR),      no,  Failed,          "ConfigValidationError", []
        None;
    PLUGIN_ERROR:                  "plugin.error",               Some(OPENAGENTS_ERROR),  no,  Failed,          "PluginError",           []
        None;
    PLUGIN_LOAD:                   "plugin.load",                Some(PLUGIN_ERROR),      no,  Failed,          "PluginLoadError",       []
        Some("check the name, or register the plugin");
    PLUGIN_CAPABILITY:             "plugin.capability",          Some(PLUGIN_ERROR),      no,  Failed,          "PluginCapabilityError", []
        Some("choose parts that fit together");
    PLUGIN_CONFIG:                 "plugin.config",              Some(PLUGIN_ERROR),      no,  Failed,          "PluginConfigError",     []
        Some("check the plugin's own config");
    EXECUTION_ERROR:               "execution.error",            Some(OPENAGENTS_ERROR),  no,  Failed,          "ExecutionError",        []
        None;
    EXECUTION_MAX_STEPS:           "execution.max_steps",        Some(EXECUTION_ERROR),   no,  MaxSteps,        "MaxStepsExceeded",      []
        Some("raise runtime.max_steps, or make the pattern converge");
    EXECUTION_BUDGET_EXHAUSTED:    "execution.budget_exhausted", Some(EXECUTION_ERROR),   no,  BudgetExhausted, "BudgetExhausted",       ["kind", "current", "limit"]
        Some("raise the limit that the message names");
    EXECUTION_OUTPUT_VALIDATION:   "execution.output_validation", Some(EXECUTION_ERROR),  no,  Failed,          "OutputValidationError", ["attempts", "last_validation_error", "output_type"]
        Some("loosen the schema, improve the prompt, or allow more retries");
    SESSION_ERROR:                 "session.error",              Some(EXECUTION_ERROR),   no,  Failed,          "SessionError",          []
        Some("check the session's store, and whether another run holds the session");
    PATTERN_ERROR:                 "pattern.error",              Some(EXECUTION_ERROR),   no,  Failed,          "PatternError",          []
        Some("read the cause");
    TOOL_ERROR:                    "tool.error",                 Some(OPENAGENTS_ERROR),  no,  Failed,          "ToolError",             ["tool_name"]
        None;
    TOOL_RETRYABLE:                "tool.retryable",             Some(TOOL_ERROR),        yes, Failed,          "RetryableToolError",    []
        None;
    TOOL_PERMANENT:                "tool.permanent",             Some(TOOL_ERROR),        no,  Failed,          "PermanentToolError",    []
        None;
    TOOL_TIMEOUT:                  "tool.timeout",               Some(TOOL_RETRYABLE),    yes, Failed,          "ToolTimeoutError",      []
        Some("raise the tool's time limit, or let it do less");
    TOOL_RATE_LIMIT:               "tool.rate_limit",            Some(TOOL_RETRYABLE),    yes, Failed,          "ToolRateLimitError",    ["retry_after_ms"]
        Some("slow down, or ask the tool's service for a higher limit");
    TOOL_UNAVAILABLE:              "tool.unavailable",           Some(TOOL_RETRYABLE),    yes, Failed,          "ToolUnavailableError",  []
        Some("check the tool's service and the network");
    TOOL_NOT_FOUND:                "tool.not_found",             Some(TOOL_PERMANENT),    no,  Failed,          "ToolNotFoundError",     []
        Some("check the agent's tools");
    TOOL_VALIDATION:               "tool.validation",            Some(TOOL_PERMANENT),    no,  Failed,          "ToolValidationError",   []
        Some("correct the arguments");
    TOOL_AUTH:                     "tool.auth",                  Some(TOOL_PERMANENT),    no,  Failed,          "ToolAuthError",         []
        Some("renew the tool's credential");
    TOOL_CANCELLED:                "tool.cancelled",             Some(TOOL_PERMANENT),    no,  Failed,          "ToolCancelledError",    []
        None;
    LLM_ERROR:                     "llm.error",                  Some(OPENAGENTS_ERROR),  no,  Failed,          "LLMError",              []
        None;
    LLM_CONNECTION:                "llm.connection",             Some(LLM_ERROR),         yes, Failed,          "LLMConnectionError",    []
        Some("check the network, the provider's status and llm.api_base");
    LLM_RATE_LIMIT:                "llm.rate_limit",             Some(LLM_ERROR),         yes, Failed,          "LLMRateLimitError",     ["retry_after_ms"]
        Some("slow down, or ask the provider for a higher limit");
    LLM_RESPONSE:                  "llm.response",               Some(LLM_ERROR),         no,  Failed,          "LLMResponseError",      []
        Some("check the key, the model's name and the parameters");
    LLM_MODEL_RETRY:               "llm.model_retry",            Some(LLM_ERROR),         no,  Failed,          "ModelRetryError",       ["validation_error"]
        None;
    USER_ERROR:                    "user.error",                 Some(OPENAGENTS_ERROR),  no,  Failed,          "UserError",             []
        None;
    USER_INVALID_INPUT:            "user.invalid_input",         Some(USER_ERROR),        no,  Failed,          "InvalidInputError",     []
        Some("correct the request");
    USER_AGENT_NOT_FOUND:          "user.agent_not_found",       Some(USER_ERROR),        no,  Failed,          "AgentNotFoundError",    []
        Some("check the agent's id");
    // Aplomb's own.
    EXECUTION_TIMEOUT:             "execution.timeout",          Some(EXECUTION_ERROR),   no,  Timeout,         "RunTimeout",            ["limit_ms", "where", "setting"]
        Some("raise the limit that the message names, or ask for less");
    EXECUTION_CANCELLED:           "execution.cancelled",        Some(EXECUTION_ERROR),   no,  Cancelled,       "RunCancelled",          ["by"]
        None;
    EXECUTION_IN_DOUBT:            "execution.in_doubt",         Some(EXECUTION_ERROR),   no,  Failed,          "OutcomeInDoubt",        ["call_id", "tool_id", "idempotency_key"]
        Some("say what happened: done with a result, failed, or run it again");
    EXECUTION_JOURNAL_MISMATCH:    "execution.journal_mismatch", Some(EXECUTION_ERROR),   no,  Failed,          "JournalMismatch",       ["record", "expected", "found"]
        Some("resume with the program and config that began the run");
    SESSION_LEASE_LOST:            "session.lease_lost",         Some(SESSION_ERROR),     no,  Failed,          "LeaseLost",             ["holder"]
        Some("check whether another process has taken the run over");
}
