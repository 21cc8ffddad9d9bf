//! The resource that the locks protect: it takes writes by their fence, and remembers all of them in their order.
//!
//! It runs in the command itself, which nobody stops, behind a Unix socket. A write is a line, `key fence`; the answer is
//! `taken` or `stale`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::commands::kid::now;

/// A write, and whether it was taken.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) at: u64,
    pub(super) key: String,
    pub(super) fence: u64,
    pub(super) taken: bool,
}

#[derive(Debug, Default)]
struct State {
    highest: BTreeMap<String, u64>,
    writes: Vec<Write>,
}

/// The resource.
#[derive(Debug)]
pub(super) struct Register {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Register {
    /// Opens it in this folder. One that is `careless` takes everything, as a resource without fences does.
    pub(super) fn open(folder: &Path, careless: bool) -> Self {
        let path = folder.join("resource");
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::<Mutex<State>>::default();
        tokio::spawn(accept(listener, state.clone(), careless));
        Self { path, state }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn writes(&self) -> Vec<Write> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).writes.clone()
    }
}

async fn accept(listener: UnixListener, state: Arc<Mutex<State>>, careless: bool) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        tokio::spawn(async move {
            let (from, mut to) = stream.into_split();
            let mut lines = BufReader::new(from).lines();
            // A client that is gone, in the middle of a line or not, is done.
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((key, fence)) = line.split_once(' ') else { return };
                let Ok(fence) = fence.parse() else { return };
                let taken = state.lock().unwrap_or_else(PoisonError::into_inner).take(key, fence, careless);
                let answer: &[u8] = if taken { b"taken\n" } else { b"stale\n" };
                if to.write_all(answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

impl State {
    fn take(&mut self, key: &str, fence: u64, careless: bool) -> bool {
        let highest = self.highest.entry(key.to_owned()).or_default();
        let taken = careless || fence >= *highest;
        *highest = fence.max(*highest);
        self.writes.push(Write { at: now(), key: key.to_owned(), fence, taken });
        taken
    }
}

/// A client's way to the resource.
#[derive(Debug)]
pub(super) struct Resource(tokio::sync::Mutex<(BufReader<OwnedReadHalf>, OwnedWriteHalf)>);

impl Resource {
    pub(super) async fn connect(path: &Path) -> Self {
        let (from, to) = UnixStream::connect(path).await.unwrap().into_split();
        Self(tokio::sync::Mutex::new((BufReader::new(from), to)))
    }

    /// Writes under this fence, and says whether it was taken.
    pub(super) async fn write(&self, key: &str, fence: u64) -> bool {
        let mut connection = self.0.lock().await;
        let (from, to) = &mut *connection;
        to.write_all(format!("{key} {fence}\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).await.unwrap();
        answer == "taken\n"
    }
}
