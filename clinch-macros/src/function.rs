//! The function under an attribute.
//!
//! Only its signature is parsed: the body passes through as it is written, so that what rustc says about it is about
//! the user's own tokens.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;
use syn::{
    Attribute, Error, Expr, FnArg, Ident, PatIdent, PatType, Receiver, Result, ReturnType, Signature, Token,
    Type, Visibility, braced,
};

use crate::parse::Errors;

pub(crate) struct Function {
    /// Those before it.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// Those at the beginning of its body.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// What stands between its braces.
    pub(crate) body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let may_be_fn = input.peek(Token![fn])
            || input.peek(Token![async])
            || input.peek(Token![const])
            || input.peek(Token![unsafe])
            || input.peek(Token![extern]);
        if !may_be_fn {
            return Err(input.error("a guard stands around a function: accepted is an `async fn`"));
        }
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(input.error("accepted is an `async fn` with a body"));
        }
        let content;
        braced!(content in input);
        let inner_attrs = content.call(Attribute::parse_inner)?;
        let body = content.parse()?;
        Ok(Self { attrs, vis, sig, inner_attrs, body })
    }
}

impl Function {
    /// Whether it can be guarded at all: it waits, so it is async; it may be refused, so it returns a `Result`.
    pub(crate) fn check(&self) -> Result<()> {
        let mut errors = Errors::default();
        if self.sig.asyncness.is_none() {
            let accepted = "accepted is an `async fn`: the guard has to wait for its engine";
            errors.push(Error::new_spanned(self.sig.fn_token, accepted));
        }
        errors.include(self.returns());
        errors.finish()
    }

    /// What it returns, unless that cannot be a `Result`. An alias may be one; rustc knows.
    pub(crate) fn returns(&self) -> Result<&Type> {
        const ACCEPTED: &str =
            "a refusal is returned as an error: accepted is `Result<_, E>` where `E: From<clinch::Error>`";
        match &self.sig.output {
            ReturnType::Default => Err(Error::new(self.sig.ident.span(), ACCEPTED)),
            ReturnType::Type(_, returned) if can_be_result(returned) => Ok(returned),
            ReturnType::Type(_, returned) => Err(Error::new_spanned(returned, ACCEPTED)),
        }
    }

    /// The names that its parameters bind, `self` among them.
    pub(crate) fn bindings(&self) -> Vec<Binding> {
        let mut names = Names::default();
        for input in &self.sig.inputs {
            let (FnArg::Receiver(Receiver { attrs, .. }) | FnArg::Typed(PatType { attrs, .. })) = input;
            names.first = names.bindings.len();
            names.cfgs = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).cloned().collect();
            match input {
                FnArg::Receiver(receiver) => names.add(&Ident::new("self", receiver.self_token.span)),
                FnArg::Typed(typed) => names.visit_pat(&typed.pat),
            }
        }
        names.bindings
    }

    pub(crate) fn is_method(&self) -> bool {
        self.sig.receiver().is_some()
    }
}

fn can_be_result(returned: &Type) -> bool {
    const NEVER: [&str; 20] = [
        "Option", "Vec", "Box", "String", "bool", "char", "i8", "i16", "i32", "i64", "i128", "isize", "u8",
        "u16", "u32", "u64", "u128", "usize", "f32", "f64",
    ];
    match returned {
        Type::Group(group) => can_be_result(&group.elem),
        Type::Paren(paren) => can_be_result(&paren.elem),
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| NEVER.iter().all(|never| last.ident != never))
        }
        Type::Macro(_) => true,
        _ => false,
    }
}

/// A name that the function's parameters bind.
pub(crate) struct Binding {
    ident: Ident,
    /// The `#[cfg]`s of its parameter: without them it is not there.
    cfgs: Vec<Attribute>,
}

impl Binding {
    /// As it stands in a template: without `r#`.
    pub(crate) fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    pub(crate) fn is_self(&self) -> bool {
        self.ident == "self"
    }

    pub(crate) fn ident(&self) -> &Ident {
        &self.ident
    }

    pub(crate) fn cfgs(&self) -> &[Attribute] {
        &self.cfgs
    }

    /// The same variable, for which rustc's messages point at `span`.
    pub(crate) fn ident_at(&self, span: Span) -> Ident {
        let mut ident = self.ident.clone();
        ident.set_span(span.resolved_at(ident.span()));
        ident
    }
}

#[derive(Default)]
struct Names {
    bindings: Vec<Binding>,
    /// Where those of the parameter begin that is being looked at.
    first: usize,
    /// Its `#[cfg]`s.
    cfgs: Vec<Attribute>,
}

impl Names {
    /// Once for a parameter, however often: each side of `A(x) | B(x)` binds it. Another parameter of the same name is there
    /// where this one is not, as their `#[cfg]`s say.
    fn add(&mut self, ident: &Ident) {
        if self.bindings.iter().skip(self.first).all(|known| known.ident != *ident) {
            self.bindings.push(Binding { ident: ident.clone(), cfgs: self.cfgs.clone() });
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.add(&pat.ident);
        syn::visit::visit_pat_ident(self, pat);
    }

    /// An expression in a pattern binds nothing.
    fn visit_expr(&mut self, _: &'ast Expr) {}
}
