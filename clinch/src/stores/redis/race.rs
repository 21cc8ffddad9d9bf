//! Asking several for one answer.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until};

use crate::store::StoreError;

/// After this long without an answer the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(150);

/// Asks one after the other, and the next one as well as soon as the one before takes long. Returns the first answer and
/// whose it is; or the last failure, if there was one before the time was over.
pub(super) async fn first_answer<P: Clone, T, A>(
    places: Vec<P>,
    deadline: Instant,
    ask: impl Fn(P) -> A,
) -> Result<(P, T), Option<StoreError>>
where
    A: Future<Output = Result<T, StoreError>>,
{
    let asking = |place: P| {
        let answer = ask(place.clone());
        async move { (place, answer.await) }
    };
    let mut places = places.into_iter();
    let mut asked = FuturesUnordered::new();
    let mut last = None;
    loop {
        if asked.is_empty() {
            let Some(place) = places.next() else { return Err(last) };
            asked.push(asking(place));
        }
        let more = places.len() > 0;
        tokio::select! {
            biased;
            Some((place, answer)) = asked.next() => match answer {
                Ok(answer) => return Ok((place, answer)),
                Err(error) => last = Some(error),
            },
            () = sleep_until(deadline) => return Err(last),
            () = sleep(NEXT_AFTER), if more => asked.extend(places.next().map(&asking)),
        }
    }
}
