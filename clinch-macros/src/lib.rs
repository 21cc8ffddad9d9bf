//! The attributes of [`clinch`](https://docs.rs/clinch), where they are used as `#[clinch::lock]`, `#[clinch::limit]` and
//! `#[clinch::prevent_duplicate]`.
//!
//! An attribute reads its options (`parse`), checks what they say together (`validate`) and that each name in a
//! template is a parameter of the function (`template`, `function`), and puts the guard around the function's body
//! (`expand`). What is wrong is a compile error at the token that is wrong, which says what is accepted.

mod expand;
mod function;
mod parse;
mod template;
mod validate;

use proc_macro::TokenStream;

use self::validate::Attribute;

/// Runs an `async fn` under a lock.
///
/// The lock is taken before the body, and given back however the body ends: with a value, by `?` or `return`, by a panic,
/// or because the future is dropped. If it is not got, the body does not run, and the function returns the
/// `clinch::Error` converted into its own error.
///
/// ```
/// use clinch::{Lease, LockManager};
///
/// struct Order { id: u64, tenant: String }
///
/// /// Only one at a time pays an order.
/// #[clinch::lock(key = "order:{order.tenant}:{order.id}", wait = "2s", manager = locks)]
/// async fn pay(locks: &LockManager, order: &Order) -> Result<u64, clinch::Error> {
///     Ok(order.id)
/// }
///
/// struct Shop { locks: LockManager, name: String }
///
/// impl Shop {
///     /// The lease gives a fence for the resource to check, and says whether it was lost.
///     #[clinch::lock(key = "stock:{self.name}", fenced, renew, manager = self.locks, lease = lease)]
///     async fn take_stock(&self) -> Result<bool, clinch::Error> {
///         Ok(lease.as_ref().and_then(Lease::fence).is_some())
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// # let locks = LockManager::memory();
/// # assert_eq!(pay(&locks, &Order { id: 7, tenant: "a".into() }).await?, 7);
/// # let _guard = locks.try_lock("order:a:8", std::time::Duration::from_secs(10)).await?;
/// # let error = pay(&locks, &Order { id: 8, tenant: "a".into() }).await.unwrap_err();
/// # assert!(matches!(error, clinch::Error::LockNotAcquired { .. }));
/// # assert!(Shop { locks, name: "s".into() }.take_stock().await?);
/// # Ok(())
/// # }
/// ```
///
/// # Options
/// Times are `ttl = "10s"` or `ttl_ms = 10_000`; a flag is `renew`, `renew = true` or `renew = false`. What is not given is as
/// the guards' defaults have it (`clinch::submit::Defaults`, which a configuration file sets), or else as below.
///
/// | option | unless given | what it does |
/// |---|---|---|
/// | `key` | required | the key, as a template |
/// | `ttl`, `ttl_ms` | 10 s | how long the lock is held at most |
/// | `wait`, `wait_ms` | 0 | how long it is waited for |
/// | `retry`, `retry_ms` | 50 ms | how often a waiter asks if nothing wakes it |
/// | `renew` | no | renews it while the body runs |
/// | `reentrant` | no | enters again what the same scope, or request, already holds |
/// | `shared` | no | shares the key with others who do so too; not with `fenced` or `fair` |
/// | `fenced` | no | asks for a fence |
/// | `fair` | no | first come, first served, across processes |
/// | `label` | none | a word for people who look at who holds it |
/// | `message` | none | what a refused user is told over HTTP |
/// | `status` | 409 | with which status, 400 to 599 |
/// | `strategy` | the guards' | what to do when the engine fails: `"fail_fast"`, `"proceed"` or `"retry_once"` |
/// | `disconnect` | `"release"` | what happens when the client of the request goes away: `"finish"`, `"release"` or `"hold"` |
/// | `enabled` | yes | whether it does anything at all |
/// | `shadow` | no | does and counts everything, and refuses nobody |
/// | `name` | the `key` | how it is called in metrics and logs, 1 to 64 bytes; the same for all calls |
/// | `manager` | see below | an expression: a `LockManager`, `Guards`, or a reference or `Arc` of one |
/// | `lease` | none | the name of a variable for the body: an `Option<Lease>`, none if the guard let the call through without a lock |
/// | `crate` | `"::clinch"` | the path of this library, where it goes by another name |
///
/// # Templates
/// `{name}` is a parameter of the function, and `{name.field.field}` a field of one; in methods also `{self.field}`. A
/// pattern counts by the names that it binds: `Path(order_id): Path<String>` is `{order_id}`. The value is written with
/// `Display` and escaped, so that no value can imitate another key. Two placeholders need a `:` between them. A name that
/// does not exist is a compile error.
///
/// # Which manager
/// The one that the attribute names; or else the guards in which the task runs (a request under `clinch::http::Web`'s
/// layer, or `clinch::submit::Guards::enter`); or else those of the process (`Guards::install`). Without any of them the
/// function returns `clinch::Error::Missing`.
///
/// # What it can stand on
/// Any `async fn` with a body that returns `Result<_, E>`, also by an alias, where `E: From<clinch::Error>`: functions and
/// methods, with generics, lifetimes and patterns. Not a function that `async_trait` has rewritten.
///
/// Of several attributes on one function, the lowest is entered first and left last.
///
/// # Cancel safety
/// The function is as safe as its body: when its future is dropped, the lock is given back in the background.
#[proc_macro_attribute]
pub fn lock(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Lock, options.into(), item.into()).into()
}

/// Runs an `async fn` only so many times at once, in the whole fleet.
///
/// A permit is taken before the body, and given back however the body ends. If there is none, the body does not run, and
/// the function returns the `clinch::Error` converted into its own error.
///
/// ```
/// use clinch::LockManager;
///
/// #[clinch::limit(key = "export:{tenant}", limit = 8, renew, manager = locks)]
/// async fn export(locks: &LockManager, tenant: &str) -> Result<usize, clinch::Error> {
///     Ok(tenant.len())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// # assert_eq!(export(&LockManager::memory(), "a").await?, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Options
/// `key`, a template, and `limit`, how many at a time, are required. `ttl` (or `ttl_ms`) is how long a permit is held at
/// most, 60 s unless given. `wait`, `retry`, `renew`, `label`, `message`, `status` (503 unless given), `strategy`,
/// `disconnect`, `enabled`, `shadow`, `name`, `manager`, `lease` and `crate` are as in [`lock`], and so is everything else that
/// is said there.
#[proc_macro_attribute]
pub fn limit(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Limit, options.into(), item.into()).into()
}

/// Refuses a call of an `async fn` if the same was submitted a moment ago.
///
/// The same is: the same function, by the same user, with the same parameters. Whoever comes second gets
/// `clinch::Error::DuplicateSubmit`, with the time left, converted into the function's own error.
///
/// ```
/// use clinch::LockManager;
///
/// #[derive(serde::Serialize)]
/// struct Order { item: u32, timestamp: u64 }
///
/// #[clinch::prevent_duplicate(
///     interval = "5s",
///     user = "{user_id}",
///     exclude_params = ["order.timestamp"],
///     release = "on_failure",
///     manager = locks,
/// )]
/// async fn create_order(locks: &LockManager, user_id: u64, order: Order) -> Result<u32, clinch::Error> {
///     Ok(order.item)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// # let locks = LockManager::memory();
/// create_order(&locks, 42, Order { item: 7, timestamp: 1 }).await?;
/// let again = create_order(&locks, 42, Order { item: 7, timestamp: 2 }).await;
/// assert!(matches!(again, Err(clinch::Error::DuplicateSubmit { .. })));
/// create_order(&locks, 43, Order { item: 7, timestamp: 3 }).await?; // another user
/// # Ok(())
/// # }
/// ```
///
/// # Whose user, which parameters
/// In a request (under `clinch::http::Web`'s layer) they are those of the request: whoever its identity chain finds, and
/// path, query and body. The names in `exclude_params` are then names in these.
///
/// Outside of a request, and always with `user` or `function` and on methods, they are the function's own. The user is made
/// of parameters by the template `user`; there is no default for it, so one of `user` and `include_user = false` is
/// needed. The parameters are those whose type is known to implement `serde::Serialize`, by the names that their patterns
/// bind; all others, such as a pool of connections or a type parameter without that bound, do not count. They are compared as
/// they are written as JSON: what is written in another order each time, as a `HashSet` is, is never the same (take a `BTreeSet`,
/// or exclude it); the order of a map's keys does not matter. The function is
/// its path, or for methods the type and the name. A function in an `impl` without a `self` goes by its module and name: if
/// two types of one module have one each, `key_prefix` keeps them apart.
///
/// # Options
/// All are optional. What is not given is as the guards' defaults have it, or else as below.
///
/// | option | unless given | what it does |
/// |---|---|---|
/// | `interval`, `interval_ms` | 5 s | for how long a call stands in the way of its duplicates at most |
/// | `message` | a plain English one | what a refused user is told |
/// | `status` | 429 | with which status over HTTP, 400 to 599 |
/// | `include_params` | yes | whether calls with different parameters are different ones |
/// | `include_user` | yes | whether calls of different users are different ones |
/// | `exclude_params` | none | parameters that do not count: names, or dotted paths into them |
/// | `key_prefix` | none | a word before all keys of this guard |
/// | `release` | `"on_completion"` | when it opens again: then, `"on_failure"` or `"never"` before the interval is over |
/// | `min_hold`, `min_hold_ms` | 0 | for how long it stays closed at least; at most the interval |
/// | `renew` | no | keeps it closed while the body runs, however long that takes |
/// | `disconnect` | `"finish"` | what happens when the client of the request goes away: `"finish"`, `"release"` or `"hold"` |
/// | `user` | the request's | a template of parameters that is the user |
/// | `function` | no | counts the function's own parameters, also in a request |
/// | `name` | the route, or the function's path | how it is called in metrics and logs |
///
/// `strategy`, `enabled`, `shadow`, `manager`, `lease` and `crate` are as in [`lock`], and so is what is said there about templates,
/// managers and functions.
///
/// It guards its handler whatever the verb, unlike a layer, which lets GET, HEAD and OPTIONS pass unless it is told otherwise.
///
/// A success, for `release`, is an `Ok`; over HTTP, an `Ok` with a status of 400 or more is none, if it is a response, a status,
/// or a tuple that begins with one. What a type of your own becomes is not known here: make it an `Err`, or a response.
#[proc_macro_attribute]
pub fn prevent_duplicate(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::PreventDuplicate, options.into(), item.into()).into()
}
