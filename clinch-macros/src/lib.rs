//! The attributes of `clinch`; documented there, and used through it.

mod expand;
mod function;
mod parse;
mod template;
mod validate;

use proc_macro::TokenStream;

/// TODO
#[proc_macro_attribute]
pub fn lock(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(validate::Attribute::Lock, options.into(), item.into()).into()
}

/// TODO
#[proc_macro_attribute]
pub fn limit(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(validate::Attribute::Limit, options.into(), item.into()).into()
}

/// TODO
#[proc_macro_attribute]
pub fn prevent_duplicate(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(validate::Attribute::PreventDuplicate, options.into(), item.into()).into()
}
