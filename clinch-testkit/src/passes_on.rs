//! For stores around a store: the steps that they only pass on.

/// Inside of an `impl Store`, passes these steps on to the store in the field: `passes_on!(inner: wakeups, inspect, ping);`.
///
/// Each is named, so that it can be seen which are not: those have the trait's default, or are what the wrapper is for.
#[macro_export]
macro_rules! passes_on {
    ($field:tt: $($step:ident),+ $(,)?) => { $($crate::passes_on!(@$step $field);)+ };
    (@capabilities $field:tt) => {
        fn capabilities(&self) -> ::clinch::store::Capabilities {
            self.$field.capabilities()
        }
    };
    (@acquire $field:tt) => {
        fn acquire<'a>(
            &'a self,
            attempt: &'a ::clinch::lease::Attempt,
        ) -> ::clinch::store::StoreFuture<'a, ::clinch::store::Verdict> {
            self.$field.acquire(attempt)
        }
    };
    (@renew $field:tt) => {
        fn renew<'a>(
            &'a self,
            lease: &'a ::clinch::lease::Attempt,
        ) -> ::clinch::store::StoreFuture<'a, ::clinch::store::Renewal> {
            self.$field.renew(lease)
        }
    };
    (@release $field:tt) => {
        fn release<'a>(
            &'a self,
            lease: &'a ::clinch::lease::Attempt,
        ) -> ::clinch::store::StoreFuture<'a, ::clinch::store::Release> {
            self.$field.release(lease)
        }
    };
    (@wakeups $field:tt) => {
        fn wakeups(
            &self,
            on: &::clinch::lease::ClaimKey,
            queued: ::core::option::Option<&::clinch::lease::Token>,
        ) -> ::clinch::store::Wakeups {
            self.$field.wakeups(on, queued)
        }
    };
    (@revocations $field:tt) => {
        fn revocations(&self) -> ::clinch::store::Revocations {
            self.$field.revocations()
        }
    };
    (@inspect $field:tt) => {
        fn inspect<'a>(
            &'a self,
            on: &'a ::clinch::lease::ClaimKey,
        ) -> ::clinch::store::StoreFuture<'a, ::std::vec::Vec<::clinch::lease::Holder>> {
            self.$field.inspect(on)
        }
    };
    (@list $field:tt) => {
        fn list(
            &self,
            cursor: ::clinch::store::Cursor,
        ) -> ::clinch::store::StoreFuture<'_, ::clinch::store::Page> {
            self.$field.list(cursor)
        }
    };
    (@revoke $field:tt) => {
        fn revoke<'a>(
            &'a self,
            on: &'a ::clinch::lease::ClaimKey,
            token: &'a ::clinch::lease::Token,
        ) -> ::clinch::store::StoreFuture<'a, bool> {
            self.$field.revoke(on, token)
        }
    };
    (@ping $field:tt) => {
        fn ping(&self) -> ::clinch::store::StoreFuture<'_, ::core::time::Duration> {
            self.$field.ping()
        }
    };
    (@close $field:tt) => {
        fn close(&self) {
            self.$field.close();
        }
    };
}
