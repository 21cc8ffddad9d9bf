//! Pictures of the console: a real `clinch serve` on a real Redis, with holders of several processes and some load, in a real
//! browser.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch::{LockManager, LockOptions};
use clinch_testkit::browser::Browser;
use clinch_testkit::http;
use clinch_testkit::serve::ClinchServe;
use clinch_testkit::server::RedisServer;

/// Where from and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program.
    #[arg(long, default_value = "target/debug/clinch")]
    program: PathBuf,
    /// The folder for the pictures.
    #[arg(long, default_value = "docs")]
    into: PathBuf,
    /// For how many seconds there is load before the pictures are taken.
    #[arg(long, default_value_t = 45)]
    load_secs: u64,
}

pub(crate) async fn run(args: &Args) -> bool {
    let server = RedisServer::start();
    let serve = ClinchServe::start(&args.program, &["--store", &server.url(), "--playground"], &[]);
    let holders = hold(&server.url()).await;
    let over = AtomicBool::new(false);
    let url = format!("http://{}/", serve.addr);
    let taken = std::thread::scope(|scope| {
        for lane in 0..8 {
            let (over, addr) = (&over, serve.addr);
            scope.spawn(move || load(addr, lane, over));
        }
        let taken = std::panic::catch_unwind(|| shoot(&url, &args.into, Duration::from_secs(args.load_secs)));
        over.store(true, Ordering::Relaxed);
        taken
    });
    drop(holders);
    taken.is_ok()
}

/// What other processes would hold.
async fn hold(url: &str) -> Vec<clinch::LockGuard> {
    let mut held = Vec::new();
    for (host, label, key, ttl, fenced) in [
        ("web-3", "checkout", "order:1042", 20, true),
        ("web-1", "checkout", "order:1077", 25, true),
        ("worker-2", "nightly import", "import:customers", 120, true),
        ("cron-1", "billing run", "billing:2026-10", 300, true),
    ] {
        let locks = LockManager::builder().host(host).connect(url).await.expect("the engine is there");
        let options = LockOptions::new(Duration::from_secs(ttl)).renew().label(label);
        let options = if fenced { options.fenced() } else { options };
        held.push(locks.lock(key, options).await.expect("nobody else has it"));
    }
    let locks = LockManager::builder().host("web-2").connect(url).await.expect("the engine is there");
    for _ in 0..2 {
        let limit = locks.limit("exports", 4).expect("a limit");
        let options = LockOptions::new(Duration::from_secs(90)).renew().label("export");
        held.push(limit.acquire(options).await.expect("there is a permit"));
    }
    held
}

/// Some of everything, so that there is something to draw.
fn load(addr: std::net::SocketAddr, lane: u64, over: &AtomicBool) {
    let mut turn = lane;
    while !over.load(Ordering::Relaxed) {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = turn >> 33;
        let work = [40, 120, 300, 700, 1200, 2500][usize::try_from(random % 6).expect("small")];
        let path = match random / 6 % 5 {
            _ if lane >= 5 => "/demo/seats/A7?work_ms=900".to_owned(),
            0 | 1 => format!("/demo/orders?work_ms={work}"),
            2 => format!("/demo/orders/{}/pay?work_ms={work}", random % 3),
            3 => format!("/demo/reports?work_ms={work}"),
            _ => format!("/demo/export?work_ms={work}"),
        };
        let body = format!("{{\"item\": {}}}", random / 30 % 3);
        if let Ok(answer) = http::post(addr, &path).json(&body).try_send() {
            let _ = answer.text();
        }
        std::thread::sleep(Duration::from_millis(20 + random / 90 % 120));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels of a page")]
fn shoot(url: &str, into: &Path, load: Duration) {
    let browser = Browser::start();
    browser.resize(1440, 1020);
    browser.prefer("light");
    browser.go(url);
    browser.wait_for("document.querySelectorAll('#rows tr').length >= 6");
    // Not to wait for anything: so that the charts have a past.
    std::thread::sleep(load);
    for (scheme, width, height, name) in
        [("light", 1440, 1180, "light"), ("dark", 1440, 1180, "dark"), ("light", 390, 1100, "phone")]
    {
        browser.prefer(scheme);
        browser.resize(width, height);
        browser.click("#fire");
        browser.wait_for("document.querySelectorAll('.cell[data-is=refused]').length === 99");
        browser.wait_for("document.querySelectorAll('.cell[data-is=accepted]').length === 1");
        browser.wait_for("document.getElementById('storm-note').textContent.includes('×')");
        let _ = browser.eval("window.scrollTo(0, 0) ?? 1");
        // As tall as the page, within reason.
        let tall = browser.eval("document.querySelector('footer.bottom').getBoundingClientRect().bottom");
        let tall = tall.as_f64().map_or(height, |tall| (tall as u32).clamp(600, height));
        browser.resize(width, tall);
        // Transitions end.
        std::thread::sleep(Duration::from_millis(700));
        browser.shoot(&into.join(format!("console-{name}.png")));
    }
}
