//! How far a measurement is, on a terminal and nowhere else.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};

const WIDTH: usize = 30;
const EVERY: Duration = Duration::from_millis(100);

/// A bar over the whole of it, on stderr.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
    began: Instant,
    whole: Duration,
}

impl Progress {
    pub(super) fn new(whole: Duration) -> Self {
        Self { shown: io::stderr().is_terminal(), began: Instant::now(), whole }
    }

    /// Draws the bar again and again, for ever.
    pub(super) async fn draw(&self, what: &str) -> std::convert::Infallible {
        loop {
            if self.shown {
                let done = self.began.elapsed().as_secs_f64() / self.whole.as_secs_f64();
                put(&bar(done, what));
            }
            sleep(EVERY).await;
        }
    }
}

/// Whatever the end was, the line is clean.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            put("\r\x1b[K");
        }
    }
}

fn bar(done: f64, what: &str) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=WIDTH")]
    let full = (done.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("\r[{}{}] {what}\x1b[K", "=".repeat(full), " ".repeat(WIDTH - full))
}

fn put(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_never_leaves_its_place() {
        for (done, full) in [(-1.0, 0), (0.0, 0), (0.5, 15), (1.0, 30), (7.0, 30), (f64::NAN, 0)] {
            assert_eq!(bar(done, "x").matches('=').count(), full);
        }
    }
}
