//! The audit log: who ended whose lease by force, and what came of it.
//!
//! One line of JSON each, only ever appended; a new file is for its owner alone (0600). A force-release is two lines with the
//! same `entry`: `asked`, which is on the disk before anything is done, and then `released`, `gone` (that holder no longer
//! had it) or `failed`. So whoever cannot write the first line does not release, and one without a second line says that the
//! outcome is not known. No token is ever in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clinch::{Error, Holder};
use serde::Serialize;

use crate::holder::View;
use crate::state;

/// The log, open for appending.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    file: File,
    by: By,
}

/// Who acts.
#[derive(Debug, Clone, Serialize)]
struct By {
    /// By which part of the program: `clinch release`, …
    via: &'static str,
    /// The account's name, where this machine's own list has it.
    user: Option<String>,
    uid: u32,
    /// Who became that account by `sudo`, as `sudo` says.
    sudo_user: Option<String>,
    host: String,
    pid: u32,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    entry: &'a str,
    event: &'static str,
    #[serde(flatten)]
    by: &'a By,
    /// Where the wish came from, if not from this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    engine: &'a str,
    prefix: &'a str,
    holder: &'a View,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Which lease is to be ended, and on whose wish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) holder: &'a Holder,
    /// The engine's address, without its password.
    pub(crate) engine: &'a str,
    pub(crate) prefix: &'a str,
    /// Where the wish came from, if not from this machine: a client's address.
    pub(crate) from: Option<&'a str>,
}

/// A wish that is written down.
#[derive(Debug)]
#[must_use = "what came of it is to be written down too"]
pub(crate) struct Asked<'a> {
    audit: &'a Audit,
    wish: Wish<'a>,
    view: View,
    entry: String,
}

impl Audit {
    /// Opens the log, and makes it if it is not there. `via` is the part of the program that acts.
    pub(crate) fn open(path: &Path, via: &'static str) -> io::Result<Self> {
        // One's own folder is made; where else a path leads, a typing error might have led it.
        if let Some(folder) = state::folder().filter(|folder| path.parent() == Some(folder.as_path())) {
            state::make(&folder)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        end_last_line(&mut file)?;
        Ok(Self { path: path.to_owned(), file, by: By::this_process(via) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down that a lease is to be ended. It is on the disk when this returns. It blocks.
    pub(crate) fn asked<'a>(&'a self, wish: Wish<'a>) -> io::Result<Asked<'a>> {
        let nanos =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let view = View::new(wish.holder);
        // No process ends the same lease twice at the same moment.
        let entry = format!("{nanos:x}-{}-{}", self.by.pid, view.id);
        let asked = Asked { audit: self, wish, view, entry };
        asked.write("asked", None)?;
        Ok(asked)
    }

    fn append(&self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // In one write, so that two programs do not mix their lines.
        (&self.file).write_all(text.as_bytes())?;
        // A pipe or a terminal cannot be synced, and need not be.
        if self.file.metadata()?.is_file() { self.file.sync_data() } else { Ok(()) }
    }
}

impl Asked<'_> {
    /// Writes down what came of it. It blocks.
    pub(crate) fn ended(self, released: Result<bool, &Error>) -> io::Result<()> {
        match released {
            Ok(true) => self.write("released", None),
            Ok(false) => self.write("gone", None),
            Err(error) => self.write("failed", Some(error.to_string())),
        }
    }

    fn write(&self, event: &'static str, error: Option<String>) -> io::Result<()> {
        let Wish { engine, prefix, from, .. } = self.wish;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let (by, holder, entry) = (&self.audit.by, &self.view, self.entry.as_str());
        self.audit.append(&Line { time, entry, event, by, from, engine, prefix, holder, error })
    }
}

/// A line that a full disk cut short must not spoil the next one.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

impl By {
    fn this_process(via: &'static str) -> Self {
        let uid = rustix::process::getuid().as_raw();
        Self {
            via,
            user: user_name(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), uid),
            uid,
            sudo_user: std::env::var("SUDO_USER").ok(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
        }
    }
}

/// The name of an account, by this machine's list of them.
fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clinch::lease::{ClaimKey, Mode};
    use clinch::{Key, Token};
    use serde_json::Value;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect()
    }

    fn holder() -> Holder {
        let token = Token::from_text("00112233445566778899aabbccddeeff@web:77:nightly::1700000000123");
        Holder::new(ClaimKey::lock(Key::new("k").unwrap()), Mode::Exclusive, token, None)
    }

    const fn wish(holder: &Holder) -> Wish<'_> {
        Wish { holder, engine: "redis://h", prefix: "shop", from: Some("10.0.0.1:5") }
    }

    #[test]
    fn the_wish_is_written_before_its_outcome_and_no_token_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let holder = holder();
        let audit = Audit::open(&path, "test").unwrap();
        let asked = audit.asked(wish(&holder)).unwrap();
        assert_eq!(lines(&path).len(), 1);
        asked.ended(Ok(true)).unwrap();
        let lines = lines(&path);
        assert_eq!(
            (lines[0]["event"].as_str(), lines[1]["event"].as_str()),
            (Some("asked"), Some("released"))
        );
        assert_eq!(lines[0]["entry"], lines[1]["entry"]);
        assert_eq!(lines[1]["holder"]["label"], "nightly");
        assert_eq!((&lines[1]["from"], &lines[1]["prefix"]), (&"10.0.0.1:5".into(), &"shop".into()));
        assert!(!std::fs::read_to_string(&path).unwrap().contains("00112233"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_cut_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(&path, "{\"event\":\"ask").unwrap();
        let holder = holder();
        let audit = Audit::open(&path, "test").unwrap();
        audit.asked(wish(&holder)).unwrap().ended(Ok(false)).unwrap();
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[0], lines[2]["event"].as_str()), (3, &Value::Null, Some("gone")));
    }

    #[test]
    fn a_disk_that_is_full_is_an_error() {
        let audit = Audit::open(Path::new("/dev/full"), "test").unwrap();
        assert!(audit.asked(wish(&holder())).is_err());
    }

    #[test]
    fn users_are_named_by_the_machines_list() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nodd line\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(user_name(passwd, 7), None);
    }
}
