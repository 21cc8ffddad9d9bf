//! Catching signals that are meant for the command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};

/// What people and supervisors send on purpose. The rest has its usual effect on clinch alone.
const PASSED_ON: [(Signal, &str); 6] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// The signals that clinch gets, from [`catch`](Self::catch) on.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, Caught)>);

impl Signals {
    /// Catches all that are passed on, except those that clinch was started to ignore: under `nohup` a hang-up stays
    /// ignored, by clinch and, as it inherits that, by the command.
    pub(super) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = PASSED_ON.iter().map(|(signal, _)| *signal).filter(|signal| ignored & bit(*signal) == 0);
        let caught = wanted.map(|wanted| Ok((wanted, signal(SignalKind::from_raw(wanted.as_raw()))?)));
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// The next signal.
    ///
    /// Cancel safe: a signal that came is kept.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut came = self.0.iter_mut().filter_map(|(signal, caught)| match caught.poll_recv(context) {
                Poll::Ready(Some(())) => Some(Poll::Ready(*signal)),
                Poll::Ready(None) | Poll::Pending => None,
            });
            came.next().unwrap_or(Poll::Pending)
        })
        .await
    }
}

/// What a signal is called.
pub(super) fn name(signal: Signal) -> &'static str {
    PASSED_ON.iter().find(|(other, _)| *other == signal).map_or("a signal", |(_, name)| name)
}

/// The set of signals that this process ignores. Without `unsafe` only Linux tells; elsewhere it counts as empty.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// A signal's place in the set.
const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}
