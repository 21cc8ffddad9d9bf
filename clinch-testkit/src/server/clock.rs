//! A wall clock that a test can move.
//!
//! A small shared object stands before the server's own clock calls. It is C, because nothing else can be loaded into a
//! foreign program; the compiler is the one that Rust links with.

use std::path::Path;
use std::process::Command;

use super::RedisServer;

const SOURCE: &str = include_str!("clock.c");
const SHIM_FILE: &str = "clock.so";
const OFFSET_FILE: &str = "clock.offset";

/// Builds the shim in the server's folder, with an offset of nothing.
pub(super) fn prepare(folder: &Path) {
    let source = folder.join("clock.c");
    std::fs::write(&source, SOURCE).expect("cannot write the shim's source");
    std::fs::write(folder.join(OFFSET_FILE), 0_i64.to_ne_bytes()).expect("cannot write the offset");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(folder.join(SHIM_FILE))
        .arg(&source)
        .arg("-ldl")
        .output()
        .expect("a C compiler is needed to move a server's clock");
    assert!(built.status.success(), "cannot build the shim: {}", String::from_utf8_lossy(&built.stderr));
}

/// Has the server load the shim, if there is one in its folder.
pub(super) fn load(command: &mut Command, folder: &Path) {
    let shim = folder.join(SHIM_FILE);
    if shim.exists() {
        command.env("LD_PRELOAD", shim).env("CLINCH_CLOCK_OFFSET", folder.join(OFFSET_FILE));
    }
}

/// Has a program that is about to be started see the wall clock so many seconds ahead of the real one, or behind it. The folder is
/// for what that needs.
pub fn move_wall_clock(command: &mut Command, folder: &Path, seconds: i64) {
    prepare(folder);
    std::fs::write(folder.join(OFFSET_FILE), seconds.to_ne_bytes()).expect("cannot write the offset");
    load(command, folder);
}

impl RedisServer {
    /// Moves the server's wall clock to so many seconds ahead of the real one, or behind it. Needs
    /// [`Builder::movable_clock`](super::Builder::movable_clock).
    ///
    /// # Panics
    ///
    /// If the server was started without it.
    pub fn move_clock(&self, seconds: i64) {
        use std::io::Write;
        let path = self.folder.path().join(OFFSET_FILE);
        // In place: the server has this very file mapped.
        let mut file = std::fs::File::options().write(true).open(path).expect("the clock is not movable");
        file.write_all(&seconds.to_ne_bytes()).expect("cannot write the offset");
    }
}
