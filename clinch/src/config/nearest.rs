//! What somebody meant who wrote something else.

/// More mistakes than this are no slip.
const MOST: usize = 3;

/// The name that is nearest to this one, if one is near.
pub(super) fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |name: &'a str| (distance(written, name), name);
    let (distance, name) = names.into_iter().map(near).min_by_key(|(distance, _)| *distance)?;
    (distance <= (written.chars().count().max(name.chars().count()) / 3).min(MOST)).then_some(name)
}

/// How many characters must be put in, taken out or changed, or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *b && other[j - 1] == *a {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found() {
        let names = ["call_timeout", "connect_timeout", "store", "strategy"];
        for (written, meant) in [
            ("cal_timeout", Some("call_timeout")),
            ("stroe", Some("store")),
            ("call-timeout", Some("call_timeout")),
            ("CALL_TIMEOUT", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), meant, "{written}");
        }
        assert_eq!(nearest("a", []), None);
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("abc", "acb")), (3, 0, 1));
    }
}
