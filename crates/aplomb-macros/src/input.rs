//! Reads what the user wrote, and says what is wrong with it where it is wrong. Knows nothing of what is made of it.

use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Ident, LitBool, LitStr, Member, Result, Type, TypePath,
};

/// One error type, as declared.
pub(crate) struct Input {
    pub(crate) ident: Ident,
    pub(crate) settings: Settings,
    /// The format string of `#[error("…")]`.
    pub(crate) text: Option<LitStr>,
    pub(crate) fields: Vec<Field>,
}

/// What `#[agent_error(…)]` says.
pub(crate) struct Settings {
    pub(crate) code: LitStr,
    pub(crate) parent: Parent,
    pub(crate) hint: Option<LitStr>,
    pub(crate) docs_url: Option<LitStr>,
    pub(crate) retryable: Option<LitBool>,
}

/// What the code is a kind of.
pub(crate) enum Parent {
    BuiltIn(LitStr),
    Type(TypePath),
}

pub(crate) struct Field {
    pub(crate) member: Member,
    pub(crate) ty: Type,
    /// The name under which the field is in the error's context.
    pub(crate) context: Option<String>,
    pub(crate) is_source: bool,
}

impl Input {
    pub(crate) fn read(input: DeriveInput) -> Result<Input> {
        let fields = match input.data {
            Data::Struct(data) => data.fields,
            Data::Enum(data) => return Err(Error::new(data.enum_token.span, ONLY_STRUCTS)),
            Data::Union(data) => return Err(Error::new(data.union_token.span, ONLY_STRUCTS)),
        };
        if !input.generics.params.is_empty() {
            return Err(Error::new_spanned(input.generics, NO_GENERICS));
        }
        Ok(Input {
            settings: Settings::read(&input.ident, &input.attrs)?,
            text: read_text(&input.attrs)?,
            fields: read_fields(fields)?,
            ident: input.ident,
        })
    }
}

const ONLY_STRUCTS: &str = "AgentError: derive it on a struct: one code per type";
const NO_GENERICS: &str = "AgentError: derive it on a struct without generic parameters: one code per type, and a generic struct is many";
const MISSING: &str = "AgentError: `code` and `parent` are required: \
                       #[agent_error(code = \"area.name\", parent = \"tool.permanent\")]";
const CODE_FORM: &str = "an error code is two or more words joined by dots, each of lower-case letters, digits and \
                         underscores, and beginning with a letter: \"billing.declined\"";

impl Settings {
    fn read(ident: &Ident, attributes: &[Attribute]) -> Result<Settings> {
        let (mut code, mut parent, mut hint, mut docs_url, mut retryable) = (None, None, None, None, None);
        for attribute in named(attributes, "agent_error") {
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.require_ident()?;
                let value = || meta.value();
                match key.to_string().as_str() {
                    "code" => set(&mut code, key, value()?.parse()?),
                    "parent" => set(&mut parent, key, value()?.parse()?),
                    "hint" => set(&mut hint, key, value()?.parse()?),
                    "docs_url" => set(&mut docs_url, key, value()?.parse()?),
                    "retryable" => set(&mut retryable, key, value()?.parse()?),
                    unknown => Err(meta.error(format!(
                        "unknown key `{unknown}`: expected `code`, `parent`, `hint`, `docs_url` or `retryable`"
                    ))),
                }
            })?;
        }
        let place = || {
            named(attributes, "agent_error").next().map_or(ident.to_token_stream(), |a| a.to_token_stream())
        };
        let (Some(code), Some(parent)) = (code, parent) else {
            return Err(Error::new_spanned(place(), MISSING));
        };
        check_form(&code)?;
        Ok(Settings { code, parent, hint, docs_url, retryable })
    }
}

/// Sets what is set once.
fn set<T>(setting: &mut Option<T>, key: &Ident, value: T) -> Result<()> {
    match setting.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(key.span(), format!("`{key}` is given twice"))),
    }
}

/// The form of `Code::is_well_formed`, which looks again when a runtime is built: here the place is known.
fn check_form(code: &LitStr) -> Result<()> {
    let is_word = |word: &str| {
        word.starts_with(|letter: char| letter.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let text = code.value();
    if text.contains('.') && text.split('.').all(is_word) {
        Ok(())
    } else {
        Err(Error::new(code.span(), CODE_FORM))
    }
}

impl Parse for Parent {
    fn parse(input: ParseStream<'_>) -> Result<Parent> {
        if input.peek(LitStr) {
            return input.parse().map(Parent::BuiltIn);
        }
        input.parse().map(Parent::Type).map_err(|_| {
            input.error(
                "expected a built-in code, such as \"tool.permanent\", or a type that is an AgentError",
            )
        })
    }
}

fn read_text(attributes: &[Attribute]) -> Result<Option<LitStr>> {
    let mut text = None;
    for attribute in named(attributes, "error") {
        let given = attribute.parse_args::<LitStr>().map_err(|error| {
            let message =
                "`#[error(\"…\")]` takes one string over the fields; for more, implement Display yourself";
            Error::new(error.span(), message)
        })?;
        if text.replace(given).is_some() {
            return Err(Error::new_spanned(attribute, "`error` is given twice"));
        }
    }
    Ok(text)
}

fn read_fields(fields: Fields) -> Result<Vec<Field>> {
    let mut read = Vec::new();
    let mut marked = false;
    for (field, member) in fields.iter().zip(fields.members()) {
        let context = match marker(&field.attrs, "context")? {
            None => None,
            Some(attribute) => match &field.ident {
                Some(ident) => Some(ident.unraw().to_string()),
                None => {
                    return Err(Error::new_spanned(
                        attribute,
                        "a context field needs a name: use `struct S { … }`",
                    ));
                }
            },
        };
        let is_source = match marker(&field.attrs, "source")? {
            Some(attribute) if marked => {
                return Err(Error::new_spanned(attribute, "an error has one source"));
            }
            found => found.is_some(),
        };
        marked |= is_source;
        read.push(Field { member, ty: field.ty.clone(), context, is_source });
    }
    if !marked {
        for field in &mut read {
            field.is_source = matches!(&field.member, Member::Named(name) if name == "source");
        }
    }
    Ok(read)
}

fn named<'a>(attributes: &'a [Attribute], name: &'static str) -> impl Iterator<Item = &'a Attribute> {
    attributes.iter().filter(move |attribute| attribute.path().is_ident(name))
}

/// The attribute of that name, which takes no arguments.
fn marker<'a>(attributes: &'a [Attribute], name: &'static str) -> Result<Option<&'a Attribute>> {
    let found = named(attributes, name).next();
    if let Some(attribute) = found {
        attribute.meta.require_path_only()?;
    }
    Ok(found)
}
