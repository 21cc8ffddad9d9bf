//! Where the file is: from the URL to a path, and from a path to a file that is there.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{empty, not_created, not_there};
use crate::key::escape::unescape;
use crate::store::{ErrorKind, StoreError};

const ACCEPTED: &str = "accepted is `sqlite:///absolute/path.db` or `sqlite:relative/path.db`, with `?`, `#` and `%` in it \
                        written as %3F, %23 and %25, and after it `?mode=rw` where the file must be there already";

/// What a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

/// What becomes of a file that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    /// It is made.
    Made,
    /// It is an error, and so is one in which nothing is.
    Expected,
}

/// Reads a URL. Its one parameter is that of SQLite's own addresses.
pub(super) fn parse(url: &str) -> Result<Address, StoreError> {
    let wrong = |reason: &str| StoreError::not_applied(ErrorKind::Config, format!("{reason}; {ACCEPTED}"));
    let rest = url.strip_prefix("sqlite:").ok_or_else(|| wrong("this is no `sqlite:` address"))?;
    let written = match rest.strip_prefix("//") {
        // Between two and the third slash stands a host.
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => return Err(wrong("a file has no host: write three slashes, or none")),
        None => rest,
    };
    let (written, mode) = written.split_once('?').map_or((written, None), |(path, mode)| (path, Some(mode)));
    let file = match mode {
        None | Some("mode=rwc") => File::Made,
        Some("mode=rw") => File::Expected,
        Some(_) => return Err(wrong("there is no such parameter")),
    };
    if written.contains('#') {
        return Err(wrong("there are no fragments"));
    }
    let path = unescape(written).ok_or_else(|| wrong("a `%` stands before something that is no escape"))?;
    match path.as_str() {
        "" => Err(wrong("there is no path")),
        ":memory:" => Err(wrong("what lives in memory is shared by nobody: that engine is `memory:`")),
        path if path.contains('\0') => Err(wrong("no file's name has a NUL in it")),
        path if path.ends_with('/') => Err(wrong("this is a directory: name a file in it")),
        path if path.starts_with('~') => Err(wrong("a `~` is not expanded here: write the whole path")),
        path => Ok(Address { path: path.into(), file }),
    }
}

/// No database has fewer bytes.
const SMALLEST: u64 = 512;

/// Sees to it that the file is there, with its directory: readable by nobody else where we made it. One that is expected is
/// not made.
pub(super) fn find(path: &Path, file: File) -> Result<(), StoreError> {
    if path.is_dir() {
        let message = format!("{} is a directory; name a file in it", path.display());
        return Err(StoreError::not_applied(ErrorKind::Config, message));
    }
    match std::fs::metadata(path).map(|file| file.len()) {
        Err(error) if file == File::Expected && is_missing(&error) => return Err(not_there(path, error)),
        Err(_) if file == File::Expected => return Ok(()),
        Err(_) => {}
        // Nobody has locked anything there: one that is being made, or that was made by hand.
        Ok(0) if file == File::Expected => return Err(empty(path)),
        // SQLite would take it for an empty one.
        Ok(bytes @ 1..SMALLEST) => {
            let message = format!(
                "{} has {bytes} bytes and is no SQLite database; it was not touched: name another file",
                path.display()
            );
            return Err(StoreError::not_applied(ErrorKind::Protocol, message));
        }
        Ok(_) => return Ok(()),
    }
    if let Some(directory) = path.parent() {
        make_directory(directory).map_err(|error| not_created("the directory", directory, error))?;
    }
    make_file(path).map_err(|error| not_created("the file", path, error))
}

/// Whether there is no such file, or nothing in which one could be.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(unix)]
fn make_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make_directory(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)
}

/// Under another name first: whoever closes a file gives up all locks that his process has on it (POSIX), so nobody may
/// open and close this one beside SQLite.
#[cfg(unix)]
fn make_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{:016x}", rand::random::<u64>()));
    let new = path.with_file_name(name);
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    // An error says that somebody else was faster, or that there are no links here: then SQLite makes it.
    let _ = std::fs::hard_link(&new, path);
    std::fs::remove_file(&new)
}

#[cfg(not(unix))]
fn make_file(_path: &Path) -> io::Result<()> {
    // SQLite makes it.
    Ok(())
}

/// Which file a path names at the moment, to notice that it is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(#[cfg(unix)] (u64, u64));

impl Identity {
    /// `None` if there is no such file.
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(path).ok().map(|file| Self((file.dev(), file.ino())))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_path: &Path) -> Option<Self> {
        // An open file can be neither deleted nor replaced there.
        Some(Self())
    }
}

/// How much room this user has on the file's file system, if that can be told.
#[cfg(unix)]
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(path).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
pub(super) fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// File systems of several machines, by the number that the kernel has for them. SQLite's log needs memory that all its
/// users share, and machines do not share any: each would believe that it is alone.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x0102_1997, "9p"),
];

/// File systems of one machine that people may meet. The names are the kernel's.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: &[(u32, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x0102_1994, TMPFS),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, OVERLAY),
    (0x6573_5546, FUSE),
];

/// In memory.
pub(super) const TMPFS: &str = "tmpfs";
/// Layers over each other, as containers have them.
pub(super) const OVERLAY: &str = "overlay";
/// Anything may be behind it.
pub(super) const FUSE: &str = "fuse";

/// The number that the kernel has for the kind of a file's file system, if that can be asked.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn number_of_file_system(path: &Path) -> Option<u32> {
    let system = rustix::fs::statfs(path).ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of 32 bits, in whatever type"
    )]
    Some(system.f_type as u32)
}

/// On what kind of file system the file is: a name, or a number that we have none for.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn kind_of_file_system(path: &Path) -> Option<Cow<'static, str>> {
    let number = number_of_file_system(path)?;
    let known = LOCAL.iter().chain(NETWORK).find(|(known, _)| *known == number);
    Some(known.map_or_else(|| format!("{number:#x}").into(), |(_, name)| (*name).into()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn kind_of_file_system(_path: &Path) -> Option<Cow<'static, str>> {
    None
}

/// Refuses a file on a file system that machines share.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn refuse_network(path: &Path) -> Result<(), StoreError> {
    // What cannot be asked is not refused for that.
    let Some(number) = number_of_file_system(path) else { return Ok(()) };
    match NETWORK.iter().find(|(known, _)| *known == number) {
        None => Ok(()),
        Some((_, name)) => {
            let message = format!(
                "{} is on a network file system ({name}), where SQLite cannot keep two machines apart; put the file on a \
                 local disk, or use an engine for several machines (redis://…)",
                path.display()
            );
            Err(StoreError::not_applied(ErrorKind::Config, message))
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn refuse_network(_path: &Path) -> Result<(), StoreError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_paths() {
        for (url, expected) in [
            ("sqlite:///var/lib/clinch/locks.db", "/var/lib/clinch/locks.db"),
            ("sqlite:/var/lib/clinch/locks.db", "/var/lib/clinch/locks.db"),
            ("sqlite:locks.db", "locks.db"),
            ("sqlite:../state/locks.db", "../state/locks.db"),
            ("sqlite:///tmp/a%3Fb%23c%25d e@f.db", "/tmp/a?b#c%d e@f.db"),
        ] {
            for (mode, file) in [("", File::Made), ("?mode=rwc", File::Made), ("?mode=rw", File::Expected)] {
                let address = Address { path: expected.into(), file };
                assert_eq!(parse(&format!("{url}{mode}")).unwrap(), address, "{url}{mode}");
            }
        }
    }

    #[test]
    fn other_urls_are_refused_with_what_is_accepted() {
        for (url, reason) in [
            ("sqlite:", "no path"),
            ("sqlite://", "no host"),
            ("sqlite://host/locks.db", "no host"),
            ("sqlite://locks.db", "no host"),
            ("sqlite::memory:", "`memory:`"),
            ("sqlite:///tmp/", "directory"),
            ("sqlite:///tmp/x.db?mode=ro", "no such parameter"),
            ("sqlite:///tmp/x.db?cache=shared&mode=rw", "no such parameter"),
            ("sqlite:x.db?", "no such parameter"),
            ("sqlite:?mode=rw", "no path"),
            ("sqlite:x.db#y", "no fragments"),
            ("sqlite:~/x.db", "not expanded"),
            ("sqlite:x%zz", "no escape"),
            ("sqlite:x%00", "NUL"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(
                error.message().contains(reason) && error.message().contains("accepted is"),
                "{url}: {error}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_we_make_is_ours_alone_and_what_is_there_stays_as_it_is() {
        use std::os::unix::fs::PermissionsExt as _;
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("state");
        let file = folder.join("deep/locks.db");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(find(&file, File::Expected).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(!folder.exists(), "nothing is made that is expected");
        find(&file, File::Made).unwrap();
        assert_eq!(find(&file, File::Expected).unwrap_err().kind(), ErrorKind::Unavailable, "it is empty");
        assert_eq!((mode(&folder), mode(&folder.join("deep")), mode(&file)), (0o700, 0o700, 0o600));
        let content = "content".repeat(100);
        std::fs::write(&file, &content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = Identity::of(&file);
        find(&file, File::Made).unwrap();
        find(&file, File::Expected).unwrap();
        assert_eq!((mode(&file), Identity::of(&file)), (0o640, before));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(find(&folder, File::Made).unwrap_err().kind(), ErrorKind::Config);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Identity::of(&file), None);
    }
}
