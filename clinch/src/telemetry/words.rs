//! What can come of things, in words: the values of labels, and of fields in logs.

/// An enum whose variants have a word each.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            #[cfg(feature = "metrics")]
            pub(super) const WORDS: &[&'static str] = &[$($word,)*];

            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

words! {
    /// What came of an attempt.
    Attempted {
        Acquired = "acquired",
        Reentered = "reentered",
        DeniedByLock = "denied_by_lock",
        DeniedByLimit = "denied_by_limit",
        /// Denied by the same submission, or by the same request with its `Idempotency-Key`, running or done.
        Duplicate = "duplicate",
        /// The engine failed, and the caller goes on without it.
        Unprotected = "unprotected",
        EngineFailed = "engine_failed",
        /// It was granted, but its answer came when its validity was over.
        TooLate = "too_late",
        /// It was granted, and ended by force before its answer came.
        Revoked = "revoked",
        ShutDown = "shut_down",
        /// What was asked for cannot be: its scope has ended, or would wait for itself.
        Invalid = "invalid",
        /// Its caller is gone.
        Cancelled = "cancelled",
    }
}

words! {
    /// How one holder's time with a lease ended.
    Released {
        GivenBack = "released",
        /// It was given back, and left a record in its place.
        Completed = "completed",
        /// It stays until it runs out, as its policy says.
        Kept = "kept",
        /// The next one in line of this process has it.
        Passed = "passed",
        /// The engine no longer had it, and by our own count its validity was over.
        Expired = "expired",
        /// The engine no longer had it, although by our own count it was valid: it lost its memory, or somebody else has the key.
        TakenOver = "taken_over",
        /// It was ended by force.
        Revoked = "revoked",
        /// The answer to an earlier release was lost, and there was nothing left to give back the next time. Most likely it was
        /// that earlier one.
        Unknown = "unknown",
        /// The engine could not be told before the lease had run out.
        Engine = "engine",
    }
}

words! {
    /// What came of a renewal.
    Renewed {
        Extended = "extended",
        /// It was extended, but its answer came when the lease was over or on its way out.
        Late = "late",
        Lost = "lost",
        Failed = "failed",
    }
}

words! {
    /// Why a lease no longer protects a guard that is alive.
    Lost {
        Expired = "expired",
        TakenOver = "taken_over",
        Revoked = "revoked",
    }
}
