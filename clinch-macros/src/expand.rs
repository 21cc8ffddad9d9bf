//! The code that an attribute makes of a function.
//!
//! It enters, runs the body as an async block of its own (so that `?` and `return` end the body and not the guard),
//! tells the guard how that ended, and returns what the body returned. A refusal is returned as the function's error.
//!
//! Variables of its own have the hygiene of the macro: they neither shadow the user's nor are seen by the body. All paths
//! are absolute. Nothing that it borrows lives across an await, so the future is `Send` where the user's would be.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::visit_mut::VisitMut;
use syn::{Error, Result, Token, Type, TypeInfer};

use crate::function::{Binding, Function};
use crate::parse::Errors;
use crate::validate::{Attribute, Guard, Kind, Value};

/// As `quote!`, with the macro's hygiene; lints of the user's crate do not look at it.
macro_rules! code {
    ($($code:tt)*) => { quote_spanned!(Span::mixed_site()=> $($code)*) };
}

/// The function with the guard around its body; or what is wrong, and the function as it was, so that those who call it
/// do not add errors of their own.
pub(crate) fn attribute(attribute: Attribute, options: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => return [error.into_compile_error(), item].into_iter().collect(),
    };
    match guarded(attribute, options, &function) {
        Ok(guarded) => guarded,
        Err(error) => {
            let error = error.into_compile_error();
            // That a parameter is used in the template alone is not worth a warning beside the error.
            quote!(#error #[allow(unused)] #item)
        }
    }
}

fn guarded(attribute: Attribute, options: TokenStream, function: &Function) -> Result<TokenStream> {
    let mut errors = Errors::default();
    errors.include(function.check());
    let guard = errors.include(Guard::new(attribute, options));
    let entry = guard.as_ref().and_then(|guard| errors.include(Entry::new(guard, function)));
    errors.finish()?;
    match (guard, entry) {
        (Some(guard), Some(entry)) => wrap(function, &guard, &entry),
        // Not reached: whatever kept it from being there is an error that was returned above.
        _ => Err(Error::new(Span::call_site(), "the attribute cannot be expanded")),
    }
}

/// The whole function.
fn wrap(function: &Function, guard: &Guard, entry: &Entry) -> Result<TokenStream> {
    let Function { attrs, vis, sig, inner_attrs, body } = function;
    let Entry { guard: guard_type, made, steps } = entry;
    let library = &guard.library;
    let mut returned = function.returns()?.clone();
    // At the return type, because it is there that a `Result`, or its `From<clinch::Error>`, is missing, if it is.
    let at = returned.span().resolved_at(Span::mixed_site());
    let refused = quote_spanned!(at=> return ::core::result::Result::Err(::core::convert::From::from(error)));
    let [ok, err] = [
        quote_spanned!(at=> ::core::result::Result::Ok(value)),
        quote_spanned!(at=> ::core::result::Result::Err(_)),
    ];
    ErasedImplTrait.visit_type_mut(&mut returned);
    let manager = match &guard.manager {
        Some(manager) => quote_spanned! {manager.span().resolved_at(Span::mixed_site())=>
            ::core::option::Option::Some(#library::attribute::guards(&(#manager)))
        },
        None => code!(::core::option::Option::None),
    };
    let lease = guard.lease.as_ref().map(|lease| code!(let #lease = admission.lease();));
    let block = code! {
        {
            #(#inner_attrs)*
            // Made once, at the first call.
            static __CLINCH: ::std::sync::LazyLock<#library::attribute::#guard_type> =
                ::std::sync::LazyLock::new(|| #made);
            let manager = #manager;
            #steps
            let admission = match entering.await {
                ::core::result::Result::Ok(admission) => admission,
                ::core::result::Result::Err(error) => #refused,
            };
            #lease
            let result: #returned = async move {
                // Never the case. It tells the compiler what the body returns before it reads the body, as the signature
                // would: an `Ok(Box::new(…))` that is to be a `Box<dyn …>` depends on it.
                if let ::core::option::Option::Some(never) = ::core::option::Option::<#returned>::None {
                    return never;
                }
                #body
            }
            .await;
            let succeeded = match &result {
                #ok => {
                    #[allow(unused_imports)]
                    use #library::attribute::{ViaAnything as _, ViaStatus as _};
                    (&&#library::attribute::Ended(value)).succeeded()
                }
                #err => false,
            };
            admission.finish(succeeded).await;
            result
        }
    };
    Ok(quote!(#(#attrs)* #vis #sig #block))
}

/// How a guard is made, and how a call enters it.
struct Entry {
    /// The guard's type in `clinch::attribute`.
    guard: TokenStream,
    /// The expression that makes it.
    made: TokenStream,
    /// The statements up to `entering`, the future that enters.
    steps: TokenStream,
}

impl Entry {
    fn new(guard: &Guard, function: &Function) -> Result<Self> {
        let bindings = function.bindings();
        if let Some(lease) = &guard.lease
            && bindings.iter().any(|binding| binding.ident() == lease)
        {
            let taken = format!("invalid `lease`: `{lease}` is a parameter; accepted is another name");
            return Err(Error::new(lease.span(), taken));
        }
        let library = &guard.library;
        let settings: TokenStream = guard.settings.iter().map(|set| setting(library, set)).collect();
        match &guard.kind {
            Kind::Lock { key } => {
                let template = &key.literal;
                Ok(Self {
                    guard: code!(Lock),
                    made: code! {
                        #library::attribute::Lock::new(#template, |policy| policy #settings)
                    },
                    steps: by_key(&key.values(&bindings)?),
                })
            }
            Kind::Limit { key, limit } => {
                let template = &key.literal;
                Ok(Self {
                    guard: code!(Limit),
                    made: code! {
                        #library::attribute::Limit::new(#template, #limit, |policy| policy #settings)
                    },
                    steps: by_key(&key.values(&bindings)?),
                })
            }
            Kind::Duplicate { user, anonymous, function: as_function } => {
                let own = as_function.or(function.is_method().then(Span::call_site));
                if let (Some(span), None, false) = (own, user, anonymous) {
                    let accepted = "accepted is `user = \"{…}\"`, or `include_user = false`";
                    let unknown = format!(
                        "the user of a method, or of a `function`, is not found by itself; {accepted}"
                    );
                    return Err(Error::new(span, unknown));
                }
                let name = function.sig.ident.to_string();
                let by_user = user.as_ref().map(|user| {
                    let template = &user.literal;
                    code!(.user(#template))
                });
                let as_function = own.map(|_| code!(.function()));
                let user = user.as_ref().map(|user| user.values(&bindings)).transpose()?;
                Ok(Self {
                    guard: code!(Duplicate),
                    made: code! {{
                        // Stands in the function, so that its path says which one that is, also among those of one name.
                        const fn here() {}
                        #library::attribute::Duplicate::new(
                            #library::attribute::path(
                                ::core::any::type_name_of_val(&here),
                                #name,
                                ::core::concat!(::core::module_path!(), "::", #name)
                            ),
                            |policy| policy #settings
                        ) #by_user #as_function
                    }},
                    steps: by_call(library, function.is_method(), &bindings, user.as_ref()),
                })
            }
        }
    }
}

/// Enters by a key. It is made in a statement of its own: the values are borrowed, and need not be `Sync`.
fn by_key(values: &TokenStream) -> TokenStream {
    code! {
        #[allow(clippy::used_underscore_binding)]
        let key = __CLINCH.key(&[#values]);
        let entering = __CLINCH.enter(manager, key);
    }
}

/// Enters by what the call is about: its parameters, as far as they can be serialised, and its user.
fn by_call(
    library: &TokenStream,
    is_method: bool,
    bindings: &[Binding],
    user: Option<&TokenStream>,
) -> TokenStream {
    let call = match is_method {
        true => code!(__CLINCH.call_on(::core::any::type_name::<Self>(), manager)),
        false => code!(__CLINCH.call(manager)),
    };
    let params = bindings.iter().filter(|binding| !binding.is_self()).map(|binding| {
        let (name, ident, cfgs) = (binding.name(), binding.ident(), binding.cfgs());
        code! {
            #(#cfgs)*
            call.param(#name, {
                #[allow(unused_imports)]
                use #library::attribute::{ViaNothing as _, ViaSerialize as _};
                (&&#library::attribute::Param(&#ident)).json()
            });
        }
    });
    let user = user.map(|values| {
        code! {
            #[allow(clippy::used_underscore_binding)]
            call.user(&[#values]);
        }
    });
    code! {
        #[allow(unused_mut)]
        let mut call = #call;
        #[allow(clippy::used_underscore_binding)]
        if call.wants_params() {
            #(#params)*
        }
        #user
        let entering = call.enter();
    }
}

/// A call of one of the policy's setters.
fn setting(library: &TokenStream, (setter, value): &(&'static str, Value)) -> TokenStream {
    let setter = format_ident!("{setter}", span = Span::mixed_site());
    let value = match value {
        Value::Flag(flag) => code!(#flag),
        // Without its type: the setter's parameter says it.
        Value::Number(number) => Literal::u32_unsuffixed(*number).into_token_stream(),
        Value::Time(time) => {
            let (secs, nanos) = (time.as_secs(), time.subsec_nanos());
            code!(::core::time::Duration::new(#secs, #nanos))
        }
        Value::Text(text) => code!(#text),
        // Without elements it still has a type.
        Value::Texts(texts) if texts.is_empty() => code!([""; 0]),
        Value::Texts(texts) => code!([#(#texts),*]),
        Value::Variant(path) => {
            let parts = path.split("::").map(|part| format_ident!("{part}", span = Span::mixed_site()));
            code!(#library #(::#parts)*)
        }
    };
    code!(.#setter(#value))
}

/// Writes `_` for `impl Trait`, which has no name inside the function; the rest of the type still helps inference.
struct ErasedImplTrait;

impl VisitMut for ErasedImplTrait {
    fn visit_type_mut(&mut self, visited: &mut Type) {
        match visited {
            Type::ImplTrait(_) => {
                *visited = Type::Infer(TypeInfer { underscore_token: Token![_](Span::mixed_site()) });
            }
            other => syn::visit_mut::visit_type_mut(self, other),
        }
    }
}
