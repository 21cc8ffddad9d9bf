//! Many callers, one of whom computes.

use super::LockManager;
use super::guard::Lease;
use super::options::LockOptions;
use crate::error::Error;
use crate::key::{IntoKey, Key};

/// Why there is no value: what [`LockManager::single_flight`] fails with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SingleFlightError<E> {
    /// The lock was not to be had, and at the end of the wait there was still no value.
    #[error(transparent)]
    Lock(Error),
    /// What `read` or `compute` failed with, untouched.
    #[error(transparent)]
    Inner(E),
}

impl LockManager {
    /// Gives a value that many want and one computes: of all callers with the same key, in all processes, one runs
    /// `compute` while the others wait for its value.
    ///
    /// `read` looks into the cache that the callers share. `compute` makes the value, and **puts it into that cache before
    /// it returns**: as soon as it has returned, the lock is given back, and the next caller reads. What becomes of it:
    ///
    /// 1. `read`. If there is a value, that is it, and no lock is asked for.
    /// 2. The lock is taken, with the options' TTL, `wait`, renewal and all.
    /// 3. `read` again, under the lock: somebody else may have computed it meanwhile.
    /// 4. `compute`, with a [`Lease`] to look at. The lock is given back, also if it failed: then the next one computes.
    ///
    /// Whoever does not get the lock within its `wait` reads once more before that becomes an error. So let `wait` be as
    /// long as computing may take; without one, all but the first get [`Error::LockNotAcquired`] as long as there is no
    /// value. Let the options [renew](LockOptions::renew), or the TTL be long enough: if the lease is lost, another one
    /// computes beside the first.
    ///
    /// This saves work. It keeps nothing consistent: a value may be computed twice (a lost lease, an engine that forgot,
    /// [`Strategy::Proceed`](crate::Strategy::Proceed)), and what is in the cache may be out of date. Where a second
    /// `compute` would do harm, a cache is not what you need: see [`fencing`](crate::fencing).
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    /// use clinch::{LockManager, LockOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::memory(); // or all processes on one Redis
    /// let cache = Mutex::new(None); // stands for a cache that they share
    /// let computed = Mutex::new(0);
    ///
    /// let report = || {
    ///     let options = LockOptions::new(Duration::from_secs(10)).renew().wait(Duration::from_secs(60));
    ///     let read = async || Ok::<_, std::io::Error>(*cache.lock().unwrap());
    ///     let compute = async |_lease| {
    ///         *computed.lock().unwrap() += 1;
    ///         *cache.lock().unwrap() = Some(42); // first into the cache …
    ///         Ok(42) // … then the next one may read
    ///     };
    ///     locks.single_flight("fill:report", options, read, compute)
    /// };
    /// let (one, two) = tokio::try_join!(report(), report())?;
    /// assert_eq!((one, two, *computed.lock().unwrap()), (42, 42, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SingleFlightError::Inner`] with what `read` or `compute` failed with; [`SingleFlightError::Lock`] as
    /// [`lock`](Self::lock), and for [`shared`](LockOptions::shared) options, which would let all compute. Bad input is
    /// found before anything is read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future drops whichever of `read` and `compute` is running, and then gives the lock back in the
    /// background; the next one computes. What a dropped `compute` has done by then is not undone.
    pub async fn single_flight<T, E, R, Q, C, F>(
        &self,
        key: impl IntoKey,
        options: impl Into<LockOptions>,
        mut read: R,
        compute: C,
    ) -> Result<T, SingleFlightError<E>>
    where
        R: FnMut() -> Q,
        Q: Future<Output = Result<Option<T>, E>>,
        C: FnOnce(Lease) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let options = options.into();
        let key = self.check_flight(key, &options).map_err(SingleFlightError::Lock)?;
        if let Some(value) = read().await.map_err(SingleFlightError::Inner)? {
            return Ok(value);
        }
        let reading = &mut read;
        let under_lock = self.with_lock(key, options, async move |lease| match reading().await? {
            Some(value) => Ok(value),
            None => compute(lease).await,
        });
        let error = match under_lock.await {
            Ok(value) => return value.map_err(SingleFlightError::Inner),
            Err(error) => error,
        };
        if matches!(error, Error::LockNotAcquired { .. } | Error::Engine { .. })
            && let Some(value) = read().await.map_err(SingleFlightError::Inner)?
        {
            return Ok(value);
        }
        Err(SingleFlightError::Lock(error))
    }

    /// What is wrong is wrong even when there is a value: not only on the day when there is none.
    fn check_flight(&self, key: impl IntoKey, options: &LockOptions) -> Result<Key, Error> {
        let key = key.into_key()?;
        if options.shared {
            return Err(Error::option("shared", &true, "a shared lock would let all compute"));
        }
        self.plan(key.clone(), options.clone(), None)?;
        Ok(key)
    }
}
