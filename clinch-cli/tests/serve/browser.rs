//! The console in a real browser: headless Chromium, driven as a person would use it.
//!
//! Nothing here waits for a time to pass: every step waits for what can be seen.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch::{LockManager, LockOptions, Loss};
use clinch_testkit::browser::Browser;
use clinch_testkit::serve::ClinchServe;
use clinch_testkit::server::RedisServer;

use crate::common::serve;

const TTL: Duration = Duration::from_secs(120);

/// A row of the table, by its key.
fn row(key: &str) -> String {
    format!("document.querySelector('#rows tr[data-key=\"{key}\"]')")
}

/// A browser is many processes that all want a core, and what it is shown is over after some seconds: one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The console in a browser, which ends before the next one's turn.
struct Page {
    browser: Browser,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Page {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        &self.browser
    }
}

fn start() -> Page {
    // A test that failed had its turn all the same.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Page { browser: Browser::start(), _turn: turn }
}

/// Opens the console and waits until it is live.
fn open(serve: &ClinchServe) -> Page {
    let browser = start();
    browser.resize(1280, 900);
    browser.go(&format!("http://{}/", serve.addr));
    browser.wait_for("document.getElementById('live').dataset.state === 'live'");
    browser
}

/// The page did nothing that its own security policy forbids, and no script failed.
fn assert_quiet(browser: &Browser) {
    let complaints = browser.complaints();
    // A refusal is a response, and Chromium notes every one that is an error.
    let own: Vec<_> =
        complaints.iter().filter(|line| !line.contains("the server responded with a status of")).collect();
    assert!(own.is_empty(), "{own:?}");
}

/// Proves: B13
#[test]
fn a_hundred_are_fired_and_one_is_taken() {
    let serve = serve(&[]);
    let browser = open(&serve);
    assert_eq!(browser.eval("document.title"), "Clinch console");
    browser.wait_for("!document.getElementById('playground').hidden");
    // Long enough for a hundred to arrive on a machine that is busy with other tests.
    let _ = browser.eval("(document.getElementById('work').selectedOptions[0].value = '4500')");

    browser.click("#fire");

    browser.wait_for("document.querySelectorAll('.cell[data-is=refused]').length === 99");
    // As it happens: the one that was taken is still being taken, and its lease is in the table.
    browser.wait_for("document.querySelector('#rows .kind[data-kind=duplicate]')");
    browser.wait_for("document.querySelectorAll('.cell[data-is=accepted]').length === 1");
    browser.wait_for("document.getElementById('storm-note').textContent.includes('1 × 201, 99 × 429')");
    assert_eq!(browser.text(".tally .accepted"), "1accepted");
    assert_eq!(browser.text(".tally .refused"), "99refused");
    assert_eq!(browser.eval("document.querySelectorAll('.cell[data-is=failed]').length"), 0);
    assert_eq!(
        browser.eval("document.getElementById('cells').getAttribute('aria-label')"),
        "1 accepted, 99 refused, 0 failed"
    );
    browser.wait_for("!document.querySelector('#rows .kind[data-kind=duplicate]')");
    assert_quiet(&browser);
}

/// Whichever button is pressed, and whatever is chosen in between: with its key a payment is one payment, until a new key is
/// asked for.
///
/// Proves: B9, B13
#[test]
fn a_payment_is_one_payment_however_one_plays() {
    let serve = serve(&[]);
    let browser = open(&serve);
    browser.wait_for("!document.getElementById('playground').hidden");
    browser.resize(1280, 1400); // all of it, so that nothing has to be scrolled to
    browser.click(".target input[value=payments] + span");
    let key = browser.text("#form-key");
    assert!(key.starts_with("Idempotency-Key: \"form-"), "{key}");
    let _ = browser.eval("(document.getElementById('work').value = '1000')");
    browser.click("#fire");
    browser.wait_for("document.getElementById('storm-note').textContent.includes('about payment 1.')");

    // Another time to take, and straight from the page instead of from the server.
    let _ = browser.eval("(document.getElementById('work').value = '500')");
    let answered = |what: &str| {
        browser.click("#once");
        browser.wait_for("document.getElementById('answer').textContent.includes('\"')");
        let answer = browser.text("#answer");
        assert!(answer.starts_with("201 Created") && answer.contains(what), "{answer}");
        assert!(answer.contains("\"amount\": 100"), "{answer}");
        answer
    };
    assert!(answered("\"payment\": 1\n").contains("Idempotency-Replayed: true"));
    // Who has shown the token in between is still the same one.
    browser.click("#token-button");
    browser.type_in("#token-input", serve.token().unwrap());
    browser.press("\u{e007}");
    browser.wait_for("document.getElementById('token-text').textContent === 'Token set'");
    browser.click("#fire");
    browser.wait_for("document.querySelectorAll('.cell[data-is=replayed]').length === 100");
    assert_eq!(browser.text(".tally .replayed"), "100replayed");

    browser.click("#new-key");
    assert_ne!(browser.text("#form-key"), key);
    assert!(!answered("\"payment\": 2\n").contains("Idempotency-Replayed"));
    // What is to be typed into a shell is the same request.
    let typed = browser.eval("document.getElementById('curl').textContent");
    let typed = typed.as_str().unwrap();
    let form = browser.text("#form-key").replace("Idempotency-Key: \"form-", "").replace('"', "");
    assert!(typed.contains(&format!("-d '{{\"amount\":100,\"form\":{form}}}'")), "{typed}");

    // What has no such key shows none.
    browser.click(".target input[value=orders] + span");
    assert_eq!(browser.eval("document.getElementById('form').hidden"), true);
    assert_quiet(&browser);
}

/// A form is the same form, whoever sends it on: the server a hundred times, or the page.
#[test]
fn one_that_is_sent_while_a_hundred_are_under_way_is_their_duplicate() {
    let serve = serve(&[]);
    let browser = open(&serve);
    browser.wait_for("!document.getElementById('playground').hidden");
    let _ = browser.eval("(document.getElementById('work').selectedOptions[0].value = '4500')");
    let answer = || {
        browser.click("#fire");
        browser.wait_for("document.querySelector('.cell[data-is=refused]')");
        browser.click("#once");
        browser.wait_for("/^[0-9]/.test(document.getElementById('answer').textContent)");
        let answer = browser.text("#answer");
        browser.wait_for("!document.getElementById('fire').disabled");
        answer
    };
    // On a busy machine the hundred may be over before the button is pressed: then it was a first one itself, and all is played
    // again.
    let duplicate = (0..10).map(|_| answer()).find(|answer| answer.starts_with("429 "));
    assert!(duplicate.is_some(), "never refused: {}", browser.text("#answer"));
    assert_quiet(&browser);
}

/// Proves: B13
#[test]
fn a_lock_appears_and_vanishes() {
    let serve = serve(&[]);
    let browser = open(&serve);
    browser.wait_for("document.getElementById('empty').textContent === 'Nobody holds anything.'");
    browser.click(".target input[value=pay] + span");
    let _ = browser.eval("document.getElementById('work').value = '3000'");
    browser.click("#once");
    browser.wait_for(&row("order:42"));
    let shown = browser.eval(&format!("{}.innerText", row("order:42")));
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("lock") && shown.contains("fence ") && shown.contains(" left"), "{shown}");
    // The bar runs by itself.
    let width = format!("{}.querySelector('.fill').getBoundingClientRect().width", row("order:42"));
    let before = browser.eval(&width).as_f64().unwrap();
    browser.wait_for(&format!("({width} ?? 0) < {before}"));
    browser.wait_for("document.getElementById('answer').textContent.includes('\"paid\": \"42\"')");
    browser.wait_for(&format!("!{}", row("order:42")));
    assert_quiet(&browser);
}

/// Proves: B13
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_ended_with_the_token_and_not_without() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let locks = LockManager::builder().host("web-3").connect(&server.url()).await.unwrap();
    let guard = locks.lock("nightly", LockOptions::new(TTL).label("the job")).await.unwrap();
    let browser = open(&serve);
    let release = "#rows tr[data-key=nightly] button";
    browser.wait_for(&row("nightly"));
    assert_eq!(browser.eval("document.getElementById('playground').hidden"), true);

    browser.click(release);
    browser.wait_for("document.getElementById('release-dialog').open");
    let facts = browser.text("#release-facts");
    assert!(facts.contains("nightly") && facts.contains("web-3:") && facts.contains("(the job)"), "{facts}");
    browser.click("#release-go");
    browser.wait_for("document.getElementById('release-problem').textContent.includes('needs the console’s token') || document.getElementById('release-problem').textContent.includes(\"needs the console's token\")");
    browser.type_in("#release-token", "this-is-not-the-token");
    browser.click("#release-go");
    browser.wait_for("document.getElementById('release-problem').textContent.includes('not the console')");
    assert!(guard.is_valid() && server.keys("clinch:lock:nightly").len() == 1, "nothing was released");

    let _ = browser.eval("document.getElementById('release-token').value = ''");
    browser.type_in("#release-token", serve.token().unwrap());
    browser.click("#release-go");
    browser.wait_for("!document.getElementById('release-dialog').open");
    assert_eq!(guard.lost().await, Loss::Revoked);
    browser.wait_for("document.getElementById('toasts').textContent.includes('Ended: nightly')");
    browser.wait_for(&format!("!{}", row("nightly")));
    assert!(server.keys("clinch:lock:nightly").is_empty());
    let stored = browser.eval("JSON.stringify([localStorage, document.cookie, location.href])");
    assert!(!stored.as_str().unwrap().contains(serve.token().unwrap()), "{stored}");
    assert_quiet(&browser);
}

/// What others write into keys and labels stays text.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_is_never_more_than_text() {
    let server = RedisServer::start();
    let serve = serve(&["--store", &server.url()]);
    let locks = LockManager::builder().host("<b>host</b>").connect(&server.url()).await.unwrap();
    let label = "<img src=x onerror=document.title='x'>";
    let _guard = locks.lock("<script>k</script>", LockOptions::new(TTL).label(label)).await.unwrap();
    server.set("clinch:lock:<svg/onload=alert(1)>", "<script>alert(1)</script>");
    let browser = open(&serve);
    browser.wait_for("document.querySelectorAll('#rows tr').length === 2");
    let rows = browser.text("#rows");
    assert!(
        rows.contains(label) && rows.contains("<script>k</script>") && rows.contains("<b>host</b>"),
        "{rows}"
    );
    assert_eq!(
        browser.eval("document.querySelectorAll('#rows img, #rows script, #rows b, #rows svg').length"),
        0
    );
    assert_eq!(browser.eval("document.title"), "Clinch console");
    browser.click("#rows tr[data-key='<script>k</script>'] button");
    browser.wait_for("document.getElementById('release-facts').textContent.includes('onerror')");
    assert_eq!(browser.eval("document.querySelectorAll('#release-facts img').length"), 0);
    assert_quiet(&browser);
}

/// More than a page can bear is paged, counted and searched.
#[test]
fn ten_thousand_holders_do_not_stop_the_page() {
    let server = RedisServer::start();
    let script = "for i = 1, 10500 do redis.call('SET', 'clinch:lock:job:' .. i, '00112233445566778899aabbccddeeff@web:' .. i .. ':', 'PX', 600000) end";
    server.command(&["EVAL", script, "0"]);
    let serve = serve(&["--store", &server.url()]);
    let browser = open(&serve);
    browser.wait_for("document.getElementById('held').textContent === '10,500'");
    assert_eq!(browser.eval("document.querySelectorAll('#rows tr').length"), 50);
    browser.wait_for("document.getElementById('more').textContent.startsWith('500 more are held')");
    assert_eq!(browser.text("#page"), "Page 1 of 200");
    browser.click("#next");
    browser.wait_for("document.getElementById('page').textContent === 'Page 2 of 200'");
    browser.type_in("#search", "web:77");
    browser.wait_for("document.getElementById('holders-count').textContent.includes(' of ')");
    browser.wait_for(
        "[...document.querySelectorAll('#rows tr')].every((row) => row.innerText.includes('web:77'))",
    );
    assert_quiet(&browser);
}

/// Where the page has no server it says so, and goes on by itself when there is one again.
#[test]
fn a_lost_connection_is_seen_and_made_again() {
    let first = serve(&[]);
    let browser = open(&first);
    let listen = first.addr.to_string();
    drop(first);
    browser.wait_for("document.getElementById('live').dataset.state === 'lost'");
    assert_eq!(browser.text("#live-text"), "connection lost, trying again");
    let _again = serve(&["--listen", &listen]);
    browser.wait_for("document.getElementById('live').dataset.state === 'live'");
}

/// A page that needs the token asks for it, and shows everything once it has it.
#[test]
fn where_reading_needs_the_token_the_page_asks_for_it() {
    let env = [("CLINCH_SERVE_TOKEN", crate::common::TOKEN)];
    let mut serve = crate::common::serve_with(&env, &["--listen", "0.0.0.0:0"]);
    serve.addr = ([127, 0, 0, 1], serve.addr.port()).into();
    let browser = start();
    browser.go(&format!("http://{}/", serve.addr));
    browser.wait_for("document.getElementById('token-dialog').open");
    assert_eq!(browser.text("#live-text"), "needs the token");
    browser.type_in("#token-input", crate::common::TOKEN);
    browser.press("\u{e007}");
    browser.wait_for("document.getElementById('live').dataset.state === 'live'");
    browser.wait_for("document.getElementById('engine-name').textContent === 'memory:'");
    assert_quiet(&browser);
}

/// Usable without a mouse, by its parts' names, in both themes, and on a small screen.
#[test]
fn the_page_is_for_everybody() {
    let serve = serve(&[]);
    let browser = open(&serve);
    browser.wait_for("!document.getElementById('playground').hidden");
    // Everything that can be used has a name.
    let nameless = "[...document.querySelectorAll('button, input, select, a')].filter((e) => e.getClientRects().length && \
                    !(e.ariaLabel || e.innerText?.trim() || e.labels?.[0]?.innerText.trim() || e.title)).map((e) => e.outerHTML)";
    assert_eq!(browser.eval(nameless), serde_json::json!([]));
    assert_eq!(browser.eval("document.querySelectorAll('header, main, footer, h1').length >= 4"), true);
    // The guards by the keyboard: from the chosen one to the next, and then to the button.
    let _ = browser.eval("document.querySelector('.target input:checked').focus()");
    browser.press("\u{e014}"); // right
    browser.wait_for("document.getElementById('what').textContent.includes('order 42')");
    browser.press("\u{e004}\u{e004}"); // over the code to the button
    assert_eq!(browser.eval("document.activeElement.id"), "fire");
    assert_eq!(browser.eval("getComputedStyle(document.activeElement).outlineStyle"), "solid");
    // Themes: the system's, until one is chosen.
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("light");
    let light = browser.eval(ground);
    browser.prefer("dark");
    assert_ne!(browser.eval(ground), light);
    browser.click("#theme-button");
    assert_eq!((browser.eval(ground), browser.text("#theme-text")), (light, "Light".to_owned()));
    // A phone: nothing is wider than the screen.
    browser.resize(360, 740);
    assert_eq!(browser.eval("document.documentElement.scrollWidth <= 360"), true);
    assert_quiet(&browser);
}
