//! Aplomb's derives.
//!
//! They read one type and write what `aplomb::error` asks of it. They know no code of the contract: whether a parent
//! exists, the compiler finds out from the table itself.

mod expand;
mod input;

use proc_macro::TokenStream;
use syn::DeriveInput;

use crate::input::Input;

/// Gives an error of your own a code, a place in the tree of codes, and a way into `aplomb::Error`.
///
/// ```
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.declined", parent = "tool.permanent", hint = "ask for another card")]
/// #[error("card {last4} was declined")]
/// struct Declined { #[context] last4: String, #[source] cause: std::io::Error }
///
/// fn charge(last4: &str) -> Result<(), aplomb::Error> {
///     let cause = std::io::Error::other("issuer says no");
///     Err(Declined { last4: last4.to_owned(), cause })?
/// }
///
/// let error = charge("4242").unwrap_err();
/// assert_eq!(error.to_string(), "card 4242 was declined\n  hint: ask for another card");
/// assert!(error.is_a(aplomb::codes::TOOL_PERMANENT) && !error.retryable());
/// assert_eq!(error.context("last4"), Some(&serde_json::json!("4242")));
/// assert_eq!(error.details().cause.unwrap().dict.message, "issuer says no");
/// assert_eq!(error.downcast_ref::<Declined>().unwrap().last4, "4242");
/// ```
///
/// # `#[agent_error(…)]` on the struct
///
/// | key | value | meaning |
/// |---|---|---|
/// | `code` | string, required | the stable code: two or more words of `a-z`, `0-9` and `_`, joined by dots |
/// | `parent` | string or type, required | what it is a kind of: a built-in code such as `"tool.retryable"`, or another `AgentError` type |
/// | `hint` | string | what to do about it, in one line |
/// | `docs_url` | string | where it is documented |
/// | `retryable` | `true` or `false` | whether the same thing may pass when tried again; the parent's answer unless stated |
///
/// A code is the program's for ever, and in it only once. A clash is refused when the runtime is built, by
/// `aplomb::error::check_declared`, with both places.
///
/// # `#[error("…")]` on the struct
///
/// The text of the error, a format string over the fields: `{last4}`, `{last4:?}`, or `{0}` in a tuple struct. Without
/// it, implement `Display` yourself.
///
/// # On fields
///
/// - `#[context]`: the field is in the error's context, as JSON, under its own name. It must be `Serialize`; a value
///   that cannot be written as JSON shows up as the text of why.
/// - `#[source]`: the field is the error's `source()`: an error, an `Option` of one, or a `Box<dyn Error + Send + Sync>`.
///   A field that is called `source` needs no attribute.
///
/// # What it writes
///
/// The `Declaration` (its place is the derive's), submitted to the list of all codes; `AgentError`,
/// `std::error::Error` and, with `#[error]`, `Display` for the type; `From<Type> for aplomb::Error`, so that `?` works.
///
/// It is for structs without generic parameters: one code, one type.
///
/// # A family of errors
///
/// ```
/// use aplomb::error::{AgentError as _, Code};
///
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.error", parent = "tool.permanent")]
/// #[error("billing failed")]
/// struct BillingError;
///
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.busy", parent = BillingError, retryable = true)]
/// #[error("billing is busy, {0} are before us")]
/// struct Busy(u32);
///
/// assert!(Busy::CODE.is_a(BillingError::CODE) && Busy::CODE.retryable());
/// assert_eq!(Busy(3).to_string(), "billing is busy, 3 are before us");
/// assert_eq!(Code::find("billing.busy"), Some(Busy::CODE));
/// ```
///
/// What cannot be right does not compile: a parent that there is not,
///
/// ```compile_fail
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.declined", parent = "tool.pemanent")]
/// #[error("declined")]
/// struct Declined;
/// ```
///
/// a parent that is no error with a code,
///
/// ```compile_fail
/// struct Other;
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.declined", parent = Other)]
/// #[error("declined")]
/// struct Declined;
/// ```
///
/// a built-in code,
///
/// ```compile_fail
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "tool.timeout", parent = "tool.error")]
/// #[error("declined")]
/// struct Declined;
/// ```
///
/// or a text that names no field.
///
/// ```compile_fail
/// #[derive(Debug, aplomb::AgentError)]
/// #[agent_error(code = "billing.declined", parent = "tool.error")]
/// #[error("card {last5} was declined")]
/// struct Declined {
///     last4: String,
/// }
/// ```
#[proc_macro_derive(AgentError, attributes(agent_error, error, context, source))]
pub fn agent_error(tokens: TokenStream) -> TokenStream {
    let expanded = syn::parse::<DeriveInput>(tokens)
        .and_then(Input::read)
        .map_or_else(|error| error.into_compile_error(), |input| expand::expand(&input));
    expanded.into()
}
