//! Writes the code for one error type. Everything has an absolute path: the user's crate needs only `aplomb`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, Ident, LitStr, Member, PathArguments, Type};

use crate::input::{Field, Input, Parent};

pub(crate) fn expand(input: &Input) -> TokenStream {
    let Input { ident, .. } = input;
    let declaration = declaration(input);
    let context = context(input);
    let code = &input.settings.code;
    let not_built_in = quote_spanned! {code.span()=>
        const _: () = ::core::assert!(!::aplomb::error::Code::is_built_in(#code), "this error code is built in");
    };
    let source = source(input);
    let display = input.text.as_ref().map(|text| display(input, text));
    quote! {
        const _: () = {
            static DECLARATION: ::aplomb::error::Declaration = #declaration;

            #not_built_in

            ::aplomb::__private::inventory::submit! { ::aplomb::error::Declared(&DECLARATION) }

            #[automatically_derived]
            impl ::aplomb::error::AgentError for #ident {
                const CODE: ::aplomb::error::Code = ::aplomb::error::Code::declared(&DECLARATION);
                #context
            }

            #[automatically_derived]
            impl ::core::convert::From<#ident> for ::aplomb::Error {
                fn from(error: #ident) -> ::aplomb::Error {
                    ::aplomb::Error::custom(error)
                }
            }

            #source
            #display
        };
    }
}

/// Code of the derive's that errors are shown at the user's: lints take it for what it is, the derive's.
fn at(place: Span) -> Span {
    place.resolved_at(Span::call_site())
}

fn declaration(input: &Input) -> TokenStream {
    let settings = &input.settings;
    let code = &settings.code;
    let parent = match &settings.parent {
        // An unknown name does not compile, and the compiler points at it.
        Parent::BuiltIn(name) => {
            quote_spanned!(name.span()=> const { ::aplomb::error::Code::built_in(#name) })
        }
        Parent::Type(path) => quote_spanned!(path.span()=> <#path as ::aplomb::error::AgentError>::CODE),
    };
    let type_name = input.ident.to_string();
    let hint = settings.hint.as_ref().map(|hint| quote!(.hint(#hint)));
    let docs_url = settings.docs_url.as_ref().map(|url| quote!(.docs_url(#url)));
    let retryable = settings.retryable.as_ref().map(|retryable| quote!(.retryable(#retryable)));
    let fields = input.fields.iter().filter_map(|field| field.context.as_ref());
    quote! {
        ::aplomb::error::Declaration::new(#code, #parent, #type_name, ::core::file!(), ::core::line!())
            .fields(&[#(#fields),*]) #hint #docs_url #retryable
    }
}

/// `AgentError::context`, where there is any.
fn context(input: &Input) -> Option<TokenStream> {
    let entries: Vec<_> = input
        .fields
        .iter()
        .filter_map(|Field { member, ty, context, .. }| {
            let name = context.as_ref()?;
            let value =
                quote_spanned!(at(ty.span())=> ::aplomb::__private::serde_json::to_value(&self.#member));
            Some(quote!((#name, #value)))
        })
        .collect();
    let map = quote!(::aplomb::__private::serde_json::Map);
    let json = quote!(::aplomb::__private::serde_json::Value);
    (!entries.is_empty()).then(|| {
        quote! {
            fn context(&self) -> #map<::std::string::String, #json> {
                let mut context = #map::new();
                for (name, value) in [#(#entries),*] {
                    let value = value.unwrap_or_else(|error| {
                        #json::String(::std::format!("not JSON: {error}"))
                    });
                    context.insert(::std::borrow::ToOwned::to_owned(name), value);
                }
                context
            }
        }
    })
}

/// `std::error::Error`, with the source if there is one.
fn source(input: &Input) -> TokenStream {
    let ident = &input.ident;
    let method = input.fields.iter().find(|field| field.is_source).map(|Field { member, ty, .. }| {
        let found = if is_option(ty) {
            quote_spanned!(at(ty.span())=> self.#member.as_ref().map(|source| source.__as_source()))
        } else {
            quote_spanned!(at(ty.span())=> ::core::option::Option::Some(self.#member.__as_source()))
        };
        quote! {
            fn source(&self) -> ::core::option::Option<&(dyn ::core::error::Error + 'static)> {
                #found
            }
        }
    });
    // A boxed `dyn Error` is no `Error` itself: method lookup goes on to what is in the box.
    let as_source = method.as_ref().map(|_| {
        quote! {
            trait AsSource {
                fn __as_source(&self) -> &(dyn ::core::error::Error + 'static);
            }
            impl<T: ::core::error::Error + 'static> AsSource for T {
                fn __as_source(&self) -> &(dyn ::core::error::Error + 'static) {
                    self
                }
            }
            impl AsSource for dyn ::core::error::Error + ::core::marker::Send + ::core::marker::Sync {
                fn __as_source(&self) -> &(dyn ::core::error::Error + 'static) {
                    self
                }
            }
        }
    });
    quote! {
        #as_source

        #[automatically_derived]
        impl ::core::error::Error for #ident {
            #method
        }
    }
}

fn is_option(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|segment| {
        let one_type = matches!(&segment.arguments, PathArguments::AngleBracketed(arguments)
            if matches!(arguments.args.first(), Some(GenericArgument::Type(_))) && arguments.args.len() == 1);
        segment.ident == "Option" && one_type
    })
}

/// `Display`: the format string sees every field under its name, a tuple's as `_0`, `_1`, ….
fn display(input: &Input, text: &LitStr) -> TokenStream {
    let ident = &input.ident;
    // Not the user's `formatter`, which may be a field.
    let formatter = Ident::new("formatter", Span::mixed_site());
    let bindings = input.fields.iter().map(|Field { member, .. }| match member {
        Member::Named(name) => quote!(#name),
        Member::Unnamed(index) => {
            let name = format_ident!("_{}", index.index, span = text.span());
            quote!(#index: #name)
        }
    });
    let is_tuple = input.fields.iter().any(|field| matches!(field.member, Member::Unnamed(_)));
    let text =
        if is_tuple { LitStr::new(&with_named_positions(&text.value()), text.span()) } else { text.clone() };
    quote! {
        #[automatically_derived]
        impl ::core::fmt::Display for #ident {
            #[allow(unused_variables)]
            fn fmt(&self, #formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let Self { #(#bindings),* } = self;
                ::core::write!(#formatter, #text)
            }
        }
    }
}

/// `{0}` as `{_0}`: a format string captures names, not positions.
fn with_named_positions(text: &str) -> String {
    let mut named = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        named.push(letter);
        if letter == '{' {
            match letters.peek() {
                Some('{') => named.extend(letters.next()),
                Some(next) if next.is_ascii_digit() => named.push('_'),
                _ => {}
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_names_and_escaped_braces_stay() {
        assert_eq!(
            with_named_positions("{0} of {1:?}, {{0}} {{{0}}} {name}"),
            "{_0} of {_1:?}, {{0}} {{{_0}}} {name}"
        );
    }
}
