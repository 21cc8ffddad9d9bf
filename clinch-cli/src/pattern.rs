//! Which keys are meant.

/// A pattern for keys: with `*` (any text) or `?` (any one character) it is for the whole key, otherwise for any part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<char>);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let is_part = !text.contains(['*', '?']);
        Self(if is_part { format!("*{text}*") } else { text.to_owned() }.chars().collect())
    }

    /// Whether the key is meant.
    pub(crate) fn matches(&self, key: &str) -> bool {
        let (pattern, key) = (&self.0, key.chars().collect::<Vec<_>>());
        let (mut p, mut k) = (0, 0);
        // The last `*`, and how much of the key it stands for so far. To give an earlier one more never helps.
        let mut star = None;
        while k < key.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, k));
                    p += 1;
                }
                Some(sign) if *sign == '?' || *sign == key[k] => (p, k) = (p + 1, k + 1),
                _ => match star {
                    Some((at, taken)) => {
                        star = Some((at, taken + 1));
                        (p, k) = (at + 1, taken + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|sign| *sign == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_means() {
        for (pattern, yes, no) in [
            ("order", &["order", "order:1", "my-order"][..], &["ordr", ""][..]),
            ("order:*", &["order:", "order:42"], &["order", "my-order:1"]),
            ("*:42", &["order:42", ":42", "a:42:42"], &["order:421"]),
            ("a*b*c", &["abc", "aXbYc", "abbcc", "abcbc"], &["abcd", "acb"]),
            ("?rder", &["order", "ürder"], &["rder", "xorder"]),
            ("*", &["", "x"], &[]),
            ("", &["", "x"], &[]),
        ] {
            let matcher = Pattern::new(pattern);
            for key in yes {
                assert!(matcher.matches(key), "{pattern} {key}");
            }
            for key in no {
                assert!(!matcher.matches(key), "{pattern} {key}");
            }
        }
    }

    #[test]
    fn many_stars_are_no_burden() {
        let key = "a".repeat(512);
        assert!(!Pattern::new(&("a*".repeat(200) + "b")).matches(&key));
    }
}
