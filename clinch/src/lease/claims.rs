//! The claims of an attempt: nearly always one, which then needs no memory of its own.

use std::ops::Deref;

use super::Claim;

/// One claim, or several.
#[derive(Debug, Clone)]
pub(crate) enum Claims {
    One(Claim),
    Several(Vec<Claim>),
}

impl Claims {
    /// Each of them, changed.
    pub(crate) fn map(&self, change: impl Fn(&Claim) -> Claim) -> Self {
        match self {
            Self::One(claim) => Self::One(change(claim)),
            Self::Several(claims) => Self::Several(claims.iter().map(change).collect()),
        }
    }
}

impl From<Vec<Claim>> for Claims {
    fn from(mut claims: Vec<Claim>) -> Self {
        match claims.pop() {
            Some(only) if claims.is_empty() => Self::One(only),
            last => {
                claims.extend(last);
                Self::Several(claims)
            }
        }
    }
}

impl Deref for Claims {
    type Target = [Claim];

    fn deref(&self) -> &[Claim] {
        match self {
            Self::One(claim) => std::slice::from_ref(claim),
            Self::Several(claims) => claims,
        }
    }
}
