//! Options as they are written: `key = "order:{id}", renew`.
//!
//! Promises that an option is there at most once, that its value is of its kind, and that an option nobody asked for is
//! an error. Every error stands at the token that is wrong and says what is accepted; all of them are reported at once.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, Ident, Lit, LitStr, Path, Result, Token};

const TIME: &str = r#"a time with its unit, such as "250ms", "5s" or "1m 30s""#;

/// The options of one attribute. Whoever reads them says which there are by asking for them.
pub(crate) struct Options {
    given: Vec<Given>,
    asked: Vec<String>,
    errors: Errors,
}

/// `name`, or `name = value`.
struct Given {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for Given {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error("accepted is `name = value`, such as `key = \"order:{order_id}\"`, or a name alone for a flag"));
        }
        let name = input.call(Ident::parse_any)?;
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(Self { name, value: None });
        }
        if !input.peek(Token![=]) {
            return Err(input.error("accepted is `name = value`, or a name alone for a flag"));
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: Some(input.parse()?) })
    }
}

/// A value, and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let all = Punctuated::<Given, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut options = Self { given: Vec::new(), asked: Vec::new(), errors: Errors::default() };
        for given in all {
            if options.given.iter().any(|before| before.name == given.name) {
                let twice = format!("`{}` is given twice; accepted is once", given.name);
                options.errors.at(given.name.span(), twice);
            } else {
                options.given.push(given);
            }
        }
        Ok(options)
    }

    /// Reports an error that only the reader of the options can see.
    pub(crate) fn error(&mut self, span: Span, message: impl Display) {
        self.errors.at(span, message);
    }

    pub(crate) fn include<T>(&mut self, result: Result<T>) -> Option<T> {
        self.errors.include(result)
    }

    /// Reports the option as missing if it is.
    pub(crate) fn require(&mut self, name: &str, accepted: &str) {
        if self.span_of(name).is_none() {
            self.errors.at(Span::call_site(), format!("`{name}` is missing; accepted is {accepted}"));
        }
    }

    /// All errors, those about options that nobody asked for among them.
    pub(crate) fn finish(mut self) -> Result<()> {
        let accepted = list(self.asked.iter().map(|name| format!("`{name}`")), "and");
        for given in self.given {
            self.errors
                .at(given.name.span(), format!("unknown option `{}`; accepted are {accepted}", given.name));
        }
        self.errors.finish()
    }

    fn take(&mut self, name: &str) -> Option<Given> {
        self.asked.push(name.to_owned());
        let at = self.given.iter().position(|given| given.name == name)?;
        Some(self.given.remove(at))
    }

    /// Takes the value of an option. `read` answers with it, or with what is wrong and what is accepted.
    fn value<T>(
        &mut self,
        name: &str,
        accepted: &str,
        read: impl FnOnce(&Expr) -> std::result::Result<T, String>,
    ) -> Option<At<T>> {
        let given = self.take(name)?;
        let Some(expr) = &given.value else {
            self.errors.at(given.name.span(), format!("`{name}` needs a value; accepted is {accepted}"));
            return None;
        };
        match read(expr) {
            Ok(value) => Some(At { value, span: expr.span() }),
            Err(wrong) => {
                self.errors.push(Error::new_spanned(expr, format!("invalid `{name}`: {wrong}")));
                None
            }
        }
    }

    pub(crate) fn text(&mut self, name: &str, accepted: &str) -> Option<LitStr> {
        Some(self.value(name, accepted, |expr| text(expr).ok_or(format!("accepted is {accepted}")))?.value)
    }

    /// `ttl = "10s"` or `ttl_ms = 10_000`, not both.
    pub(crate) fn time(&mut self, name: &str) -> Option<At<Duration>> {
        let in_ms = format!("{name}_ms");
        let both = self.span_of(name).zip(self.span_of(&in_ms));
        let with_unit = self.value(name, TIME, |expr| time(expr, &in_ms));
        let bare = self.value(&in_ms, "a number of milliseconds, such as 5_000", |expr| {
            let accepted =
                format!("accepted is a number of milliseconds, such as 5_000; or `{name} = \"5s\"`");
            integer(expr).map(Duration::from_millis).ok_or(accepted)
        });
        if let Some((_, second)) = both {
            self.errors.at(second, format!("`{name}` and `{in_ms}` are the same; accepted is one of them"));
        }
        with_unit.or(bare)
    }

    fn span_of(&self, name: &str) -> Option<Span> {
        self.given.iter().find(|given| given.name == name).map(|given| given.name.span())
    }

    /// `renew`, `renew = true` or `renew = false`.
    pub(crate) fn flag(&mut self, name: &str) -> Option<At<bool>> {
        let given = self.take(name)?;
        match given.value.as_ref().map(|expr| (expr, literal(expr))) {
            None => Some(At { value: true, span: given.name.span() }),
            Some((expr, Some(Lit::Bool(value)))) => Some(At { value: value.value, span: expr.span() }),
            Some((expr, _)) => {
                let accepted = format!("accepted is `{name}` alone, `{name} = true` or `{name} = false`");
                self.errors.push(Error::new_spanned(expr, format!("invalid `{name}`: {accepted}")));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let accepted = format!("{} to {}", range.start(), range.end());
        let read = |expr: &Expr| {
            let number = integer(expr).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| range.contains(number)).ok_or_else(|| format!("accepted is {accepted}"))
        };
        Some(self.value(name, &accepted, read)?.value)
    }

    /// One of `words`, each of which stands before what it means.
    pub(crate) fn word(
        &mut self,
        name: &str,
        words: &[(&'static str, &'static str)],
    ) -> Option<&'static str> {
        let accepted = list(words.iter().map(|(word, _)| format!("{word:?}")), "or");
        let read = |expr: &Expr| {
            let text = text(expr).map(|text| text.value());
            let known = words.iter().find(|(word, _)| text.as_deref() == Some(*word));
            known.map(|(_, meaning)| *meaning).ok_or_else(|| format!("accepted is {accepted}"))
        };
        Some(self.value(name, &accepted, read)?.value)
    }

    /// `["a", "b.c"]`.
    pub(crate) fn texts(&mut self, name: &str) -> Option<Vec<LitStr>> {
        let accepted = r#"a list of names, such as ["timestamp", "items.nonce"]"#;
        let read = |expr: &Expr| match bare(expr) {
            Expr::Array(array) => array.elems.iter().map(text).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        Some(self.value(name, accepted, |expr| read(expr).ok_or(format!("accepted is {accepted}")))?.value)
    }

    /// Any expression.
    pub(crate) fn expression(&mut self, name: &str) -> Option<Expr> {
        let accepted = "an expression, such as `state.locks`";
        Some(self.value(name, accepted, |expr| Ok(expr.clone()))?.value)
    }

    /// The path of a crate, as a text.
    pub(crate) fn path(&mut self, name: &str) -> Option<TokenStream> {
        let accepted = "the path of the crate `clinch` here, such as \"locks\" or \"::locks\"";
        let read = |expr: &Expr| {
            let path = text(expr)?.parse_with(Path::parse_mod_style).ok()?;
            Some(path.into_token_stream())
        };
        Some(self.value(name, accepted, |expr| read(expr).ok_or(format!("accepted is {accepted}")))?.value)
    }

    /// A name for a variable.
    pub(crate) fn variable(&mut self, name: &str) -> Option<Ident> {
        let accepted = "a name for the variable, such as `lease`";
        let read = |expr: &Expr| match bare(expr) {
            Expr::Path(path) => path.path.get_ident().filter(|ident| *ident != "self").cloned(),
            _ => None,
        };
        Some(self.value(name, accepted, |expr| read(expr).ok_or(format!("accepted is {accepted}")))?.value)
    }
}

/// Without the invisible brackets around what came out of another macro.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => bare(&group.expr),
        expr => expr,
    }
}

fn literal(expr: &Expr) -> Option<&Lit> {
    match bare(expr) {
        Expr::Lit(literal) => Some(&literal.lit),
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<LitStr> {
    match literal(expr) {
        Some(Lit::Str(text)) => Some(text.clone()),
        _ => None,
    }
}

fn integer(expr: &Expr) -> Option<u64> {
    match literal(expr) {
        Some(Lit::Int(number)) => number.base10_parse().ok(),
        _ => None,
    }
}

fn time(expr: &Expr, in_ms: &str) -> std::result::Result<Duration, String> {
    let Some(text) = text(expr).map(|text| text.value()) else {
        return Err(format!("accepted is {TIME}; or `{in_ms}` with a number of milliseconds"));
    };
    let number = text.trim();
    if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!(
            "\"{number}\" has no unit; accepted is a time with its unit, such as \"{number}s\""
        ));
    }
    humantime::parse_duration(&text)
        .map_err(|error| format!("`{text}` is no time ({error}); accepted is {TIME}"))
}

/// `a, b and c`.
pub(crate) fn list(items: impl IntoIterator<Item = String>, last: &str) -> String {
    let mut items: Vec<String> = items.into_iter().collect();
    match items.pop() {
        Some(end) if items.is_empty() => end,
        Some(end) => format!("{} {last} {end}", items.join(", ")),
        None => String::new(),
    }
}

/// All that is wrong, so that it can be put right in one go.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(before) => before.combine(error),
            none => *none = Some(error),
        }
    }

    fn at(&mut self, span: Span, message: impl Display) {
        self.push(Error::new(span, message));
    }

    pub(crate) fn include<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
