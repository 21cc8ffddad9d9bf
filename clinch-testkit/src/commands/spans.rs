//! Who believed to hold something, from when until when.

/// From the first moment at which the holder knew it had it, up to the moment from which it knew otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
}

/// How many of them there were at the same time, at most.
pub(super) fn most_at_once(spans: impl IntoIterator<Item = Span>) -> usize {
    let mut edges = Vec::new();
    for span in spans.into_iter().filter(|span| span.from < span.until) {
        edges.push((span.from, true));
        edges.push((span.until, false));
    }
    // Ends sort before beginnings: what ends when another begins was not there together with it.
    edges.sort_unstable();
    let (mut present, mut most) = (0_usize, 0);
    for (_, begins) in edges {
        present = if begins { present + 1 } else { present - 1 };
        most = most.max(present);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(from: u64, until: u64) -> Span {
        Span { from, until }
    }

    #[test]
    fn counts_what_is_there_together() {
        assert_eq!(most_at_once([]), 0);
        assert_eq!(most_at_once([span(1, 5), span(5, 9)]), 1);
        assert_eq!(most_at_once([span(1, 6), span(5, 9)]), 2);
        assert_eq!(most_at_once([span(1, 9), span(2, 3), span(3, 4), span(4, 5)]), 2);
        assert_eq!(most_at_once([span(4, 9), span(1, 9), span(3, 5), span(2, 4)]), 3);
    }

    /// A lease that was over before its holder looked was never believed in.
    #[test]
    fn what_lasted_no_time_does_not_count() {
        assert_eq!(most_at_once([span(1, 9), span(5, 5), span(7, 6)]), 1);
    }
}
