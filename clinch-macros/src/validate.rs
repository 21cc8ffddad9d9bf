//! What the options say together: everything that the policies would refuse at run time and that can be seen here.
//!
//! The limits are those of `clinch::LockOptions` and of the policies in `clinch::submit`; these have the last word.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Expr, Ident, LitStr, Result};

use crate::parse::{At, Options};
use crate::template::Template;

const MIN_TTL: Duration = Duration::from_millis(10);
const MAX_TTL: Duration = Duration::from_secs(86_400);
const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);
const MIN_RETRY: Duration = Duration::from_millis(1);
const MAX_LABEL_BYTES: usize = 64;
const MAX_NAME_BYTES: usize = 64;

/// Which attribute it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Lock,
    Limit,
    PreventDuplicate,
}

/// What an attribute asks for.
pub(crate) struct Guard {
    pub(crate) kind: Kind,
    /// The setters of the policy that are called, with what.
    pub(crate) settings: Vec<(&'static str, Value)>,
    /// Where the library is found: `::clinch`, unless it was renamed.
    pub(crate) library: TokenStream,
    pub(crate) manager: Option<Expr>,
    pub(crate) lease: Option<Ident>,
}

pub(crate) enum Kind {
    Lock {
        key: Template,
    },
    Limit {
        key: Template,
        limit: u32,
    },
    Duplicate {
        user: Option<Template>,
        /// Whether all users count as one.
        anonymous: bool,
        /// Where it says that it is about the function's own parameters, if it does.
        function: Option<Span>,
    },
}

pub(crate) enum Value {
    Flag(bool),
    Number(u32),
    Time(Duration),
    Text(LitStr),
    Texts(Vec<LitStr>),
    /// A variant of an enum, which has a path of its own below `clinch`.
    Variant(&'static str),
}

impl Guard {
    pub(crate) fn new(attribute: Attribute, options: TokenStream) -> Result<Self> {
        let mut read = Read { options: Options::parse(options)?, settings: Vec::new() };
        let kind = match attribute {
            Attribute::Lock => read.lock(),
            Attribute::Limit => read.limit(),
            Attribute::PreventDuplicate => read.duplicate(),
        };
        read.common();
        let library = read.options.path("crate");
        let library = library.unwrap_or_else(|| quote_spanned!(Span::mixed_site()=> ::clinch));
        let manager = read.options.expression("manager");
        let lease = read.options.variable("lease");
        read.options.finish()?;
        match kind {
            Some(kind) => Ok(Self { kind, settings: read.settings, library, manager, lease }),
            // Not reached: whatever kept it from being read is an error that was returned above.
            None => Err(syn::Error::new(Span::call_site(), "a required option is missing")),
        }
    }
}

struct Read {
    options: Options,
    settings: Vec<(&'static str, Value)>,
}

impl Read {
    fn lock(&mut self) -> Option<Kind> {
        let key = self.required_key();
        self.lease_options();
        self.flag("reentrant");
        let shared = self.flag("shared");
        for name in ["fenced", "fair"] {
            if let (Some(true), Some(At { value: true, span })) = (shared.map(|at| at.value), self.flag(name))
            {
                self.options
                    .error(span, format!("`{name}` does not go with `shared`; accepted is one of them"));
            }
        }
        Some(Kind::Lock { key: key? })
    }

    fn limit(&mut self) -> Option<Kind> {
        let key = self.required_key();
        self.options.require("limit", "how many may run at a time, such as `limit = 8`");
        let limit = self.options.number("limit", 1..=u32::MAX);
        self.lease_options();
        Some(Kind::Limit { key: key?, limit: limit? })
    }

    fn duplicate(&mut self) -> Option<Kind> {
        let interval = self.time("interval");
        if let Some(At { value: Duration::ZERO, span }) = interval {
            self.options.error(span, "invalid `interval`: accepted is a time above 0, such as \"5s\"");
        }
        self.text("message", |_| Ok(()));
        self.flag("include_params");
        let include_user = self.flag("include_user");
        self.exclude_params();
        self.text("key_prefix", no_control);
        self.word("release", RELEASE);
        // An interval that is not stated here may be configured, and is known at run time only.
        if let (Some(At { value, span }), Some(interval)) = (self.time("min_hold"), interval)
            && value > interval.value
        {
            let accepted = "accepted is at most the interval";
            self.options.error(span, format!("invalid `min_hold`: {accepted}"));
        }
        self.flag("renew");
        let user = self.options.text("user", "a template, such as \"{user_id}\"");
        let anonymous = include_user.is_some_and(|include| !include.value);
        if let (Some(user), true) = (&user, anonymous) {
            let accepted = "accepted is one of them";
            self.options
                .error(user.span(), format!("`user` does not go with `include_user = false`; {accepted}"));
        }
        let user = user.and_then(|literal| self.options.include(Template::new(literal)));
        let function = self.options.flag("function").filter(|function| function.value);
        Some(Kind::Duplicate { user, anonymous, function: function.map(|function| function.span) })
    }

    /// What all three have.
    fn common(&mut self) {
        self.word("strategy", STRATEGY);
        self.word("disconnect", DISCONNECT);
        if let Some(status) = self.options.number("status", 400..=599) {
            self.settings.push(("status", Value::Number(status)));
        }
        self.flag("enabled");
        self.flag("shadow");
        self.text("name", |name| {
            if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
                return Err(format!("accepted are 1 to {MAX_NAME_BYTES} bytes"));
            }
            no_control(name)
        });
    }

    /// What locks and limits have.
    fn lease_options(&mut self) {
        if let Some(At { value, span }) = self.time("ttl")
            && !(MIN_TTL..=MAX_TTL).contains(&value)
        {
            self.options.error(span, "invalid `ttl`: accepted is 10 ms to 24 h");
        }
        let wait = self.time("wait").map(|wait| (wait.value, wait.span));
        if let Some((value, span)) = wait
            && value > MAX_WAIT
        {
            self.options.error(span, "invalid `wait`: accepted is 0 to 366 days");
        }
        if let Some(retry) = self.timed("retry", "retry_interval")
            && wait.is_some_and(|(wait, _)| !wait.is_zero())
            && !(MIN_RETRY..=MAX_WAIT).contains(&retry.value)
        {
            let accepted = "with a `wait`, accepted is 1 ms to 366 days; a waiter never spins";
            self.options.error(retry.span, format!("invalid `retry`: {accepted}"));
        }
        self.flag("renew");
        self.text("label", |label| {
            if label.len() > MAX_LABEL_BYTES {
                return Err(format!("accepted are at most {MAX_LABEL_BYTES} bytes"));
            }
            no_control(label)
        });
        self.text("message", |_| Ok(()));
    }

    fn required_key(&mut self) -> Option<Template> {
        self.options.require("key", "a template, such as `key = \"order:{order_id}\"`");
        let literal = self.options.text("key", "a template, such as \"order:{order_id}\"")?;
        self.options.include(Template::new(literal))
    }

    fn exclude_params(&mut self) {
        let Some(names) = self.options.texts("exclude_params") else { return };
        for name in &names {
            if name.value().split('.').any(str::is_empty) {
                let accepted = "accepted is a name, or names joined by dots, such as \"items.timestamp\"";
                self.options.error(name.span(), format!("invalid `exclude_params`: {accepted}"));
            }
        }
        self.settings.push(("exclude_params", Value::Texts(names)));
    }

    fn time(&mut self, name: &'static str) -> Option<At<Duration>> {
        self.timed(name, name)
    }

    fn timed(&mut self, name: &'static str, setter: &'static str) -> Option<At<Duration>> {
        let time = self.options.time(name)?;
        self.settings.push((setter, Value::Time(time.value)));
        Some(time)
    }

    fn flag(&mut self, name: &'static str) -> Option<At<bool>> {
        let flag = self.options.flag(name)?;
        self.settings.push((name, Value::Flag(flag.value)));
        Some(flag)
    }

    fn word(&mut self, name: &'static str, words: &[(&'static str, &'static str)]) {
        if let Some(variant) = self.options.word(name, words) {
            self.settings.push((name, Value::Variant(variant)));
        }
    }

    fn text(&mut self, name: &'static str, check: impl FnOnce(&str) -> std::result::Result<(), String>) {
        let Some(text) = self.options.text(name, "a string") else { return };
        if let Err(wrong) = check(&text.value()) {
            self.options.error(text.span(), format!("invalid `{name}`: {wrong}"));
        }
        self.settings.push((name, Value::Text(text)));
    }
}

const STRATEGY: &[(&str, &str)] = &[
    ("fail_fast", "Strategy::FailFast"),
    ("proceed", "Strategy::Proceed"),
    ("retry_once", "Strategy::RetryOnce"),
];
const RELEASE: &[(&str, &str)] = &[
    ("on_completion", "submit::ReleaseWhen::OnCompletion"),
    ("on_failure", "submit::ReleaseWhen::OnFailure"),
    ("never", "submit::ReleaseWhen::Never"),
];
const DISCONNECT: &[(&str, &str)] = &[
    ("finish", "submit::Disconnect::Finish"),
    ("release", "submit::Disconnect::Release"),
    ("hold", "submit::Disconnect::Hold"),
];

fn no_control(text: &str) -> std::result::Result<(), String> {
    match text.contains(char::is_control) {
        true => Err("accepted is a text without control characters".to_owned()),
        false => Ok(()),
    }
}
