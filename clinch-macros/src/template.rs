//! Key templates, by the rules of `clinch::KeyTemplate`, and what their names stand for.
//!
//! Promises that a template which passes here is one at run time too, and that each of its names begins with a binding
//! of the function.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Error, Ident, LitStr, Result};

use crate::function::Binding;
use crate::parse::list;

/// The longest key, as in `clinch::key`.
const MAX_KEY_BYTES: usize = 512;

/// A template, and for each name in it the text between the braces.
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    names: Vec<String>,
}

impl Template {
    pub(crate) fn new(literal: LitStr) -> Result<Self> {
        match parse(&literal.value()) {
            Ok(names) => Ok(Self { literal, names }),
            Err(wrong) => Err(Error::new(literal.span(), wrong)),
        }
    }

    /// The list of names and values that fills it: `("req.id", &req.id)`.
    ///
    /// What rustc has to say about a value (no such field, no `Display`) it says at the template.
    pub(crate) fn values(&self, bindings: &[Binding]) -> Result<TokenStream> {
        let span = self.literal.span();
        let mut values = TokenStream::new();
        for name in &self.names {
            let mut parts = name.split('.');
            let first = parts.next().unwrap_or_default();
            let Some(binding) = bindings.iter().find(|binding| binding.name() == first) else {
                return Err(Error::new(span, unknown(name, first, bindings)));
            };
            let base = binding.ident_at(span);
            let fields = parts.map(|part| field(part, span)).collect::<Result<Vec<_>>>()?;
            values.extend(quote_spanned!(span=> (#name, &#base #(.#fields)*),));
        }
        Ok(values)
    }
}

fn unknown(name: &str, first: &str, bindings: &[Binding]) -> String {
    let of_what = if name == first { String::new() } else { format!(" of `{{{name}}}`") };
    let accepted = match bindings {
        [] => "the function has none; accepted is a template without placeholders".to_owned(),
        bindings => {
            let names = bindings.iter().map(|binding| format!("`{}`", binding.name()));
            format!("accepted are {}, and fields of them", list(names, "and"))
        }
    };
    format!("`{first}`{of_what} is no parameter of the function: {accepted}")
}

/// A field's name as an identifier; one that is a keyword is written raw.
fn field(name: &str, span: Span) -> Result<Ident> {
    let parsed = match name {
        "self" | "Self" | "super" | "crate" | "_" => None,
        name => syn::parse_str(name).or_else(|_| syn::parse_str(&format!("r#{name}"))).ok(),
    };
    let mut ident: Ident =
        parsed.ok_or_else(|| Error::new(span, format!("`{name}` cannot be the name of a field")))?;
    ident.set_span(span);
    Ok(ident)
}

/// The names in the template, each once, in their order; or what is wrong with it.
fn parse(template: &str) -> std::result::Result<Vec<String>, String> {
    if template.is_empty() {
        return Err("the template is empty; accepted is a name such as \"order:{order_id}\"".to_owned());
    }
    if let Some((at, c)) = template.char_indices().find(|(_, c)| c.is_control()) {
        return Err(format!("the template has a control character, U+{:04X}, at byte {at}", u32::from(c)));
    }
    let mut names: Vec<String> = Vec::new();
    let mut literal_bytes = 0;
    // The placeholder that no `:` has followed yet.
    let mut open: Option<&str> = None;
    let mut rest = template;
    while !rest.is_empty() {
        let literal = rest.split(['{', '}']).next().unwrap_or_default();
        if !literal.is_empty() {
            literal_bytes += literal.len();
            open = open.filter(|_| !literal.contains(':'));
            rest = rest.strip_prefix(literal).unwrap_or_default();
            continue;
        }
        let at = template.len() - rest.len();
        let Some((name, after)) = rest.strip_prefix('{').and_then(|inside| inside.split_once('}')) else {
            return Err(format!(
                "the template has a stray brace at byte {at}; placeholders are written `{{name}}`"
            ));
        };
        if !name.split('.').all(is_identifier) {
            return Err(format!(
                "`{{{name}}}` at byte {at} is not a placeholder; accepted is a parameter or a field path of one, such as `{{order.id}}`"
            ));
        }
        if let Some(first) = open {
            return Err(format!(
                "`{{{first}}}` and `{{{name}}}` need a `:` between them, or two different lists of values could make the same key"
            ));
        }
        open = Some(name);
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        rest = after;
    }
    if literal_bytes > MAX_KEY_BYTES {
        return Err(format!(
            "the template has {literal_bytes} bytes without its placeholders; accepted are at most {MAX_KEY_BYTES}"
        ));
    }
    Ok(names)
}

fn is_identifier(part: &str) -> bool {
    part.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && part.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use clinch::KeyTemplate;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_once_each_in_their_order() {
        assert_eq!(parse("order"), Ok(vec![]));
        assert_eq!(parse("{b}:{a.x}:{b}"), Ok(vec!["b".to_owned(), "a.x".to_owned()]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (template, wrong) in [
            ("", "empty"),
            ("a\nb", "U+000A, at byte 1"),
            ("a:{x", "stray brace at byte 2"),
            ("a:x}", "stray brace at byte 3"),
            ("a:{}", "`{}` at byte 2"),
            ("a:{1x}", "`{1x}` at byte 2"),
            ("a:{x.}", "`{x.}`"),
            ("a:{f(x)}", "`{f(x)}`"),
            ("{x}-{y}", "`{x}` and `{y}` need a `:`"),
            (&"a".repeat(513), "513 bytes"),
        ] {
            let error = parse(template).unwrap_err();
            assert!(error.contains(wrong), "{template:?}: {error}");
        }
        assert!(parse(&format!("{}{{x}}", "a".repeat(512))).is_ok());
    }

    proptest! {
        /// The rules are written twice, here and in `clinch`, and are the same.
        #[test]
        fn the_rules_are_those_of_key_templates(template in "([a-c:. \\n-]|\\{|\\}|\\{[a-c.1_]{0,3}\\}){0,8}") {
            let here = parse(&template);
            let there = KeyTemplate::new(&template);
            prop_assert_eq!(here.is_ok(), there.is_ok(), "{:?} / {:?}", here, there);
            if let (Ok(here), Ok(there)) = (here, there) {
                let mut names: Vec<&str> = Vec::new();
                for name in there.placeholders() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                prop_assert_eq!(here, names);
            }
        }
    }
}
