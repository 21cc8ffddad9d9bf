//! Functions of many shapes, all of which can be guarded, without a warning, even by those who ask for all of them.

#![warn(
    clippy::pedantic,
    clippy::nursery,
    unused,
    unused_qualifications,
    trivial_casts,
    elided_lifetimes_in_paths
)]
#![allow(dead_code, unreachable_pub, reason = "it is enough that they compile")]

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use clinch::{Lease, LockManager};

type Outcome<T> = Result<T, Failure>;

#[derive(Debug)]
pub struct Failure;

impl From<clinch::Error> for Failure {
    fn from(_: clinch::Error) -> Self {
        Self
    }
}

impl From<std::num::ParseIntError> for Failure {
    fn from(_: std::num::ParseIntError) -> Self {
        Self
    }
}

pub struct Path<T>(pub T);
pub struct Pair {
    pub left: u64,
    pub right: Inner,
}
pub struct Inner {
    pub r#type: String,
}

// Everything is optional, or has a default.
#[clinch::prevent_duplicate]
pub async fn bare() -> Outcome<()> {
    Ok(())
}

/// Its documentation is kept.
#[must_use = "and so are its other attributes"]
#[clinch::lock(key = "order:{order_id}")]
pub async fn in_the_template_only(Path(order_id): Path<String>) -> Outcome<()> {
    Ok(())
}

#[clinch::lock(
    key = "order:{id}",
    ttl = "15s",
    wait = "1m 30s",
    retry_ms = 20,
    renew,
    reentrant = true,
    shared = false,
    fenced,
    fair,
    label = "nightly",
    message = "bitte warten",
    strategy = "retry_once",
    status = 423,
    enabled = true,
    shadow = false,
    manager = locks,
    lease = held
)]
pub async fn all_options_of_a_lock(locks: &LockManager, id: u64) -> Outcome<Option<Lease>> {
    let _ = id;
    Ok(held)
}

#[clinch::limit(
    key = "export:{tenant}",
    limit = 8,
    ttl_ms = 60_000,
    wait_ms = 0,
    retry = "50ms",
    renew = false,
    label = "export",
    message = "later",
    strategy = "proceed",
    status = 429,
    enabled,
    shadow,
    manager = Arc::clone(&locks),
    lease = _held,
)]
pub async fn all_options_of_a_limit(locks: Arc<LockManager>, tenant: &str) -> Outcome<()> {
    Ok(())
}

#[clinch::prevent_duplicate(
    interval = "5s",
    message = "please wait",
    include_params,
    include_user = true,
    exclude_params = ["timestamp", "items.nonce"],
    key_prefix = "shop",
    release = "on_failure",
    min_hold_ms = 500,
    renew,
    strategy = "fail_fast",
    status = 409,
    enabled = true,
    shadow = false,
    disconnect = "hold",
    user = "{user_id}",
    function,
    manager = locks,
    lease = lease
)]
pub async fn all_options_of_a_duplicate_guard(
    locks: &LockManager,
    user_id: u64,
    items: HashMap<String, u64>,
) -> Outcome<bool> {
    Ok(lease.is_some() && items.contains_key("x") && user_id > 0)
}

#[clinch::prevent_duplicate(exclude_params = [])]
pub async fn an_empty_list(_unused: u64) -> Outcome<()> {
    Ok(())
}

#[clinch::lock(key = "{a}:{b}:{left}:{c}:{type}:{d}:{first}:{whole.left}")]
#[allow(clippy::too_many_arguments)]
pub async fn patterns(
    (a, mut b): (u64, u64),
    Pair { left, right: Inner { r#type: ref c }, .. }: Pair,
    &d: &u64,
    [first, ..]: [u8; 3],
    r#type: &'static str,
    whole @ Pair { .. }: Pair,
    _: bool,
) -> Outcome<u64> {
    b += 1;
    Ok(a + b + left + d + u64::from(first) + whole.left + c.len() as u64)
}

#[clinch::prevent_duplicate(user = "{req.right.type}:{req.left}")]
pub async fn field_paths(req: Arc<Pair>, (x, [y, ..]): (u64, [u64; 2])) -> Outcome<u64> {
    Ok(req.left + x + y)
}

#[clinch::lock(key = "{first}:{second}:{third}")]
pub async fn generics<'a, T, const N: usize>(
    first: &'a T,
    second: impl Display + Send,
    third: &str,
    data: [T; N],
) -> Result<&'a T, Failure>
where
    T: Display + PartialEq + Send + Sync,
{
    if data.contains(first) && second.to_string() == third {
        return Ok(first);
    }
    Err(Failure)
}

#[clinch::lock(key = "number")]
pub async fn question_marks_and_returns(text: &str) -> Outcome<u64> {
    for part in text.split(' ') {
        if part.is_empty() {
            return Ok(0);
        }
        let number: u64 = part.parse()?;
        if number > 100 {
            return Ok(number);
        }
    }
    Ok(text.parse()?)
}

/// The body is read with the return type in mind.
#[clinch::lock(key = "boxed")]
pub async fn coercions(yes: bool) -> Result<Box<dyn Debug + Send>, Box<dyn StdError + Send + Sync>> {
    if yes {
        return Ok(Box::new(1));
    }
    let number: u64 = "x".parse()?;
    if number == 0 {
        return Err(Box::new(std::fmt::Error));
    }
    Ok(Box::new(number))
}

#[clinch::lock(key = "shown")]
pub async fn returns_impl_trait(yes: bool) -> Result<impl Display + use<>, Failure> {
    if !yes {
        Err(clinch::Error::from(clinch::KeyError::Empty))?;
    }
    Ok("text")
}

#[clinch::limit(key = "diverges", limit = 1)]
pub async fn diverges() -> Outcome<u64> {
    std::future::pending().await
}

#[clinch::lock(key = "mine")]
pub async fn mutates(mut list: Vec<u64>, other: &mut Vec<u64>) -> Outcome<Vec<u64>> {
    list.push(1);
    other.push(2);
    Ok(list)
}

/// Names that the expansion could be tempted to use, and items that hide what the signature names.
#[clinch::prevent_duplicate(user = "{key}:{call}")]
#[clinch::lock(key = "{key}:{manager}:{admission}", lease = lease)]
pub async fn own_names(key: u64, manager: u64, admission: u64, result: u64, call: u64) -> Outcome<u64> {
    #![allow(dead_code)]
    struct Failure;
    enum Option {}
    const fn helper(error: u64) -> u64 {
        error
    }
    let _ = lease;
    Ok(helper(key + manager + admission + result + call))
}

pub struct Shop<T> {
    locks: LockManager,
    tenant: T,
    count: u64,
}

impl<T: Display + Clone + Send + Sync> Shop<T> {
    #[clinch::lock(key = "shop:{self.tenant}:{id}", manager = self.locks)]
    pub async fn by_reference(&self, id: u64) -> Outcome<T> {
        Ok(self.tenant.clone())
    }

    #[clinch::limit(key = "shop:{self.tenant}", limit = 2, manager = &self.locks)]
    pub async fn by_mutable_reference(&mut self) -> Outcome<u64> {
        self.count += 1;
        Ok(self.count)
    }

    #[clinch::prevent_duplicate(manager = self.locks, user = "{self.tenant}")]
    pub async fn by_value(self, Path(amount): Path<u64>) -> Outcome<Self> {
        let _ = amount;
        Ok(self)
    }

    #[clinch::lock(key = "shop:{self.tenant}", manager = self.locks)]
    pub async fn by_arc(self: Arc<Self>) -> Outcome<()> {
        Ok(())
    }

    #[clinch::lock(key = "shop:{tenant}", manager = locks)]
    pub async fn associated(tenant: T, locks: LockManager) -> Outcome<Self> {
        Ok(Self { locks, tenant, count: 0 })
    }
}

pub trait Till {
    fn number(&self) -> u64;

    #[allow(async_fn_in_trait)]
    #[clinch::prevent_duplicate(key_prefix = "till", include_user = false)]
    async fn open(&self, with: u64) -> Outcome<u64> {
        Ok(self.number() + with)
    }
}

impl Till for Shop<u64> {
    fn number(&self) -> u64 {
        self.count
    }

    #[clinch::lock(key = "till:{with}", manager = self.locks)]
    async fn open(&self, with: u64) -> Outcome<u64> {
        Ok(self.count + with)
    }
}

macro_rules! guarded {
    ($name:ident, $parameter:ident, $key:literal, $ttl:literal) => {
        #[clinch::lock(key = $key, ttl = $ttl)]
        pub async fn $name($parameter: u64) -> Outcome<u64> {
            Ok($parameter)
        }
    };
}

guarded!(from_a_macro, id, "order:{id}", "10s");

fn assert_send<F: Send>(_: F) {}

/// Nothing is run here; the futures are made, and can be sent.
pub fn main() {
    assert_send(bare());
    assert_send(in_the_template_only(Path(String::new())));
    assert_send(all_options_of_a_lock(&LockManager::memory(), 1));
    assert_send(all_options_of_a_limit(Arc::new(LockManager::memory()), ""));
    assert_send(all_options_of_a_duplicate_guard(&LockManager::memory(), 1, HashMap::new()));
    assert_send(generics(&1, 2, "3", [4]));
    assert_send(coercions(true));
    assert_send(returns_impl_trait(true));
    assert_send(own_names(1, 2, 3, 4, 5));
    assert_send(from_a_macro(1));
    let shop = Shop { locks: LockManager::memory(), tenant: 1_u64, count: 0 };
    assert_send(shop.by_reference(1));
    assert_send(shop.by_value(Path(1)));
}
