//! Everybody on one CPU, where only one thing is done at a time.
//!
//! Client and server then take turns, and whether the kernel has put them on one CPU or on two makes a pair three times as fast or
//! as slow: on two, each has gone to sleep before its turn comes. Which it is changes by the second, and would be all that is seen.

use clinch_testkit::server::RedisServer;

/// All threads of this process and of the server, until it is dropped. Where threads cannot be held, nothing is different.
pub(crate) struct OneCpu {
    #[cfg(target_os = "linux")]
    before: Vec<(rustix::process::Pid, rustix::thread::CpuSet)>,
}

impl OneCpu {
    #[cfg(target_os = "linux")]
    pub(crate) fn holds(server: &RedisServer) -> Self {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let threads = [std::process::id(), server.pid()].into_iter().flat_map(threads_of);
        let before: Vec<_> =
            threads.filter_map(|thread| Some((thread, sched_getaffinity(Some(thread)).ok()?))).collect();
        let mut one = CpuSet::new();
        let first = before.first().and_then(|(_, may)| (0..CpuSet::MAX_CPU).find(|cpu| may.is_set(*cpu)));
        one.set(first.unwrap_or_default());
        for (thread, _) in &before {
            // One that cannot be held, or is gone, goes where it likes.
            _ = sched_setaffinity(Some(*thread), &one);
        }
        Self { before }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn holds(_server: &RedisServer) -> Self {
        Self {}
    }
}

#[cfg(target_os = "linux")]
impl Drop for OneCpu {
    fn drop(&mut self) {
        for (thread, before) in &self.before {
            _ = rustix::thread::sched_setaffinity(Some(*thread), before);
        }
    }
}

#[cfg(target_os = "linux")]
fn threads_of(process: u32) -> Vec<rustix::process::Pid> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    threads.filter_map(number).filter_map(rustix::process::Pid::from_raw).collect()
}
