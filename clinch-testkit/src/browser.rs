//! A real browser: headless Chromium, driven through `chromedriver` by the WebDriver protocol, which is JSON over HTTP.
//!
//! ```no_run
//! use clinch_testkit::browser::Browser;
//!
//! let browser = Browser::start();
//! browser.go("http://127.0.0.1:4747/");
//! browser.wait_for("document.title === 'Clinch console'");
//! browser.click("#fire");
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its browser has nothing better to do than to stop with a message"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http;
use crate::server::process::{Process, guarded, spawn};

/// No step takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at a page.
const POLL: Duration = Duration::from_millis(25);

/// What makes it small, quiet and able to run as root. Nothing of it talks to anything but the page under test.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    driver: SocketAddr,
    session: String,
    _process: Process,
    _profile: TempDir,
}

impl Browser {
    /// Starts one, with a profile of its own.
    ///
    /// # Panics
    /// If there is none, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let mut command = guarded(OsStr::new("chromedriver"));
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = spawn(command).expect("chromedriver can be started (Debian: chromium-driver)");
        let driver = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&mut process)));
        let mut arguments: Vec<_> = ARGUMENTS.iter().map(|argument| (*argument).to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = call(driver, "POST", "/session", &capabilities);
        let session = session["sessionId"].as_str().expect("a session has an id").to_owned();
        Self { driver, session, _process: process, _profile: profile }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        call(self.driver, "POST", &format!("/session/{}{path}", self.session), body)
    }

    /// A command of Chromium's own protocol.
    fn cdp(&self, command: &str, params: &Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": params}));
    }

    /// Opens a page.
    pub fn go(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// The size of the page, in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.cdp("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the system is said to prefer: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.cdp("Emulation.setEmulatedMedia", &features);
    }

    /// The value of an expression in the page.
    #[must_use]
    pub fn eval(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({"script": format!("return ({expression});"), "args": []}))
    }

    /// The text of the first element that a selector finds; empty if there is none.
    #[must_use]
    pub fn text(&self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({})?.textContent ?? ''", quoted(selector)));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it does not become true.
    pub fn wait_for(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.eval(&format!("Boolean({expression})")) != Value::Bool(true) {
            assert!(
                Instant::now() < deadline,
                "still not: {expression}\n{}",
                self.eval("document.body.innerText").as_str().unwrap_or_default()
            );
            std::thread::sleep(POLL);
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|found| found.values().next()?.as_str());
        id.unwrap_or_else(|| panic!("no element {selector}: {found}")).to_owned()
    }

    /// Clicks on an element, as a person would: it must be there to be seen.
    pub fn click(&self, selector: &str) {
        self.post(&format!("/element/{}/click", self.element(selector)), &json!({}));
    }

    /// Types into an element.
    pub fn type_in(&self, selector: &str, text: &str) {
        self.post(&format!("/element/{}/value", self.element(selector)), &json!({"text": text}));
    }

    /// Presses keys in whatever has the focus. `\u{e004}` is Tab, `\u{e007}` Enter, `\u{e00c}` Escape.
    pub fn press(&self, keys: &str) {
        let actions: Vec<_> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})))
            .collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}));
    }

    /// What the page has said on its console since this was last asked, errors of its security policy included.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "browser"}));
        let lines = log.as_array().cloned().unwrap_or_default();
        lines.iter().filter_map(|line| line["message"].as_str().map(str::to_owned)).collect()
    }

    /// Takes a picture of what can be seen.
    pub fn shoot(&self, file: &Path) {
        let picture =
            call(self.driver, "GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        let bytes = from_base64(picture.as_str().expect("a picture is a text"));
        std::fs::write(file, bytes)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver is killed by its own drop.
        let _ = http::request(self.driver, "DELETE", &format!("/session/{}", self.session)).try_send();
    }
}

/// The port that the driver has chosen.
fn port(process: &mut Process) -> u16 {
    let out = BufReader::new(process.take_stdout().expect("its output is a pipe"));
    for line in out.lines() {
        let line = line.expect("chromedriver says where it listens");
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return port.trim_end_matches('.').parse().expect("a port is a number");
        }
    }
    panic!("chromedriver ended at its start");
}

fn call(driver: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let mut request = http::request(driver, method, path);
    if method != "GET" {
        request = request.json(&body.to_string());
    }
    let answer = request.send();
    let status = answer.status;
    let mut value = answer.json();
    assert!(status == 200, "{method} {path}: {}", value["value"]["message"]);
    value["value"].take()
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for six in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).expect("eight bits"));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that goes wrong is heard of.
    #[test]
    fn complaints_are_heard() {
        let browser = Browser::start();
        browser.go("data:text/html,<title>calm</title>");
        assert_eq!(
            (browser.eval("document.title"), browser.complaints()),
            ("calm".into(), Vec::<String>::new())
        );
        browser.go("data:text/html,<script>throw new Error('planted')</script>");
        assert!(browser.complaints().iter().any(|line| line.contains("planted")));
        let policy = "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\">";
        browser.go(&format!("data:text/html,{policy}<script>let x</script>"));
        assert!(browser.complaints().iter().any(|line| line.contains("Content Security Policy")));
    }

    #[test]
    fn base64() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba")]
        {
            assert_eq!(from_base64(text), bytes.as_bytes());
        }
    }
}
