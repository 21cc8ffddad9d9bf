//! Many futures at once, for less than `join_all` takes for as many: that makes a shared and counted piece of memory for each, and
//! keeps all of them until it has begun with the first. Here each is polled as soon as it is made, which for one that is ready
//! then is all; places and wakers are made once and used again, and one that waits is polled again when it is woken.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::peers::Pending;

/// Room for so many futures.
pub(crate) struct Together {
    places: Vec<(Arc<Place>, Waker)>,
    woken: Arc<Woken>,
}

/// Which of them were woken, and who is to be told of the first one.
#[derive(Default)]
struct Woken(Mutex<(Vec<usize>, Option<Waker>)>);

struct Place {
    number: usize,
    /// It is among those that were woken.
    noted: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.noted.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = {
            let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
            woken.0.push(self.number);
            woken.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Together {
    pub(crate) fn new(room: usize) -> Self {
        let woken = Arc::<Woken>::default();
        let place = |number| {
            let place = Arc::new(Place { number, noted: AtomicBool::new(false), woken: woken.clone() });
            (place.clone(), Waker::from(place))
        };
        Self { places: (0..room).map(place).collect(), woken }
    }

    /// Runs as many as there is room for, and gives what they come to in the order in which they do.
    pub(crate) async fn run<'a, T>(&self, mut make: impl FnMut() -> Pending<'a, T>) -> Vec<T> {
        let mut done = Vec::with_capacity(self.places.len());
        let mut waiting: Vec<_> = (self.places.iter())
            .map(|(place, waker)| {
                place.noted.store(false, Ordering::Release);
                let mut future = make();
                match future.as_mut().poll(&mut Context::from_waker(waker)) {
                    Poll::Ready(value) => done.push(value),
                    Poll::Pending => return Some(future),
                }
                None
            })
            .collect();
        let mut called = Vec::new();
        poll_fn(|context| {
            let mut polls = 0;
            while done.len() < self.places.len() {
                if self.next_woken(&mut called, context) == 0 {
                    return Poll::Pending;
                }
                polls += called.len();
                for number in called.drain(..) {
                    let (place, waker) = &self.places[number];
                    place.noted.store(false, Ordering::Release);
                    let Some(future) = &mut waiting[number] else { continue };
                    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                        waiting[number] = None;
                        done.push(value);
                    }
                }
                if polls >= self.places.len() && done.len() < self.places.len() {
                    // As `join_all`: whoever wakes itself at once waits for something that needs this thread.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
        done
    }

    /// How many were woken, which are put into `called`. Where there are none, the next one wakes this task.
    fn next_woken(&self, called: &mut Vec<usize>, context: &Context<'_>) -> usize {
        let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, waker) = &mut *woken;
        std::mem::swap(numbers, called);
        *waker = if called.is_empty() { Some(context.waker().clone()) } else { None };
        called.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ready at once, after others, and only by another task.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_of_them_are_run_to_their_ends_again_and_again() {
        let together = Together::new(300);
        for _ in 0..20 {
            let mut number = 0_u32;
            let made = || -> Pending<'static, u32> {
                number += 1;
                let number = number;
                Box::pin(async move {
                    match number % 3 {
                        0 => {}
                        1 => tokio::task::yield_now().await,
                        _ => tokio::spawn(tokio::task::yield_now()).await.expect("no panic"),
                    }
                    number
                })
            };
            let mut done = together.run(made).await;
            done.sort_unstable();
            assert_eq!(done, (1..=300).collect::<Vec<_>>());
        }
    }
}
