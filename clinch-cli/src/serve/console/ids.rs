//! Names of holders for the page, which must not have their tokens.

use clinch::Holder;

/// Gives each holder a name that says nothing about its token. Another server gives other names.
#[derive(Debug)]
pub(super) struct Ids {
    hasher: Box<blake3::Hasher>,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { hasher: Box::new(blake3::Hasher::new_keyed(&rand::random())) }
    }

    pub(super) fn of(&self, holder: &Holder) -> String {
        let mut hasher = self.hasher.clone();
        let on = holder.on().to_string();
        // The length first: no two pairs of texts make the same bytes.
        hasher.update(&on.len().to_le_bytes());
        hasher.update(on.as_bytes());
        hasher.update(holder.token().as_str().as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clinch::lease::{ClaimKey, Mode};
    use clinch::{Key, Token};

    fn holder(key: &str, token: &str) -> Holder {
        let on = ClaimKey::lock(Key::new(key).unwrap());
        Holder::new(on, Mode::Exclusive, Token::from_text(token), None)
    }

    #[test]
    fn a_name_is_of_one_holder_on_one_key_and_hides_the_token() {
        let ids = Ids::new();
        let name = ids.of(&holder("a", "secret"));
        assert_eq!(name, ids.of(&holder("a", "secret")));
        for other in [holder("a", "secret2"), holder("b", "secret"), holder("as", "ecret")] {
            assert_ne!(name, ids.of(&other));
        }
        assert_ne!(name, Ids::new().of(&holder("a", "secret")), "each server has names of its own");
        assert!(!name.contains("secret"));
    }
}
