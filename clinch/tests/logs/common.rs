//! A log that can be read: everything that is said on this thread, whoever says it, down to the last detail.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Long enough for anything that happens at all, on a busy machine too.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A TTL that no test outlives.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// Everything that was logged on this thread since it was made. A test runs on one thread, its tasks included.
pub(crate) struct Log {
    written: Written,
    _listening: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Written {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// All that anybody says, spans included.
    pub(crate) fn new() -> Self {
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(written.clone())
            .finish();
        Self { written, _listening: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.written.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
    }

    /// The lines of this level with all of these words.
    pub(crate) fn lines(&self, level: &str, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let level = format!(" {level} ");
        let fits = |line: &&str| line.contains(&level) && words.iter().all(|word| line.contains(word));
        text.lines().filter(fits).map(str::to_owned).collect()
    }
}
