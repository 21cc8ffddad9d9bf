//! Where clinch keeps what is its own on this machine: its default engine and its audit log.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The folder for it, by the rules of the XDG base directories: `$XDG_STATE_HOME/clinch`, else `~/.local/state/clinch`; for a
/// root without a home, `/var/lib/clinch`. `None` for anybody else without a home.
pub(crate) fn folder() -> Option<PathBuf> {
    folder_in(|name| std::env::var_os(name), rustix::process::geteuid().is_root())
}

fn folder_in(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    // A relative path would be another one in every working directory; the rules say to ignore it.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .or_else(|| is_root.then(|| "/var/lib".into()))
        .map(|state| state.join("clinch"))
}

/// The audit log, unless another is named.
pub(crate) fn audit_log() -> Option<PathBuf> {
    Some(folder()?.join("audit.log"))
}

/// Makes a folder and those above it, for its owner alone, if they are not there.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_users_state_folder() {
        for (xdg, home, is_root, folder) in [
            (Some("/x"), Some("/home/u"), false, Some("/x/clinch")),
            (None, Some("/home/u"), false, Some("/home/u/.local/state/clinch")),
            (Some(""), Some("/root"), true, Some("/root/.local/state/clinch")),
            (Some("relative"), Some("/home/u"), false, Some("/home/u/.local/state/clinch")),
            (None, None, true, Some("/var/lib/clinch")),
            (None, Some(""), true, Some("/var/lib/clinch")),
            (None, None, false, None),
        ] {
            let variable = |name: &str| if name == "HOME" { home } else { xdg }.map(OsString::from);
            assert_eq!(folder_in(variable, is_root).as_deref(), folder.map(Path::new), "{xdg:?} {home:?}");
        }
    }
}
