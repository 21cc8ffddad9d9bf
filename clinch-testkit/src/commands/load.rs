//! Sends submissions to the example shop at a steady rate, a tenth of them duplicates, and watches the shop's memory.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clinch_testkit::server::RedisServer;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many requests are a set; the last one of it repeats the one before.
const SET: u64 = 10;
/// A request that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program of the example shop.
    #[arg(long)]
    service: PathBuf,
    /// Requests a second.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// For how long, after a warm-up that does not count.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// For how long it is warmed up, at the same rate.
    #[arg(long, default_value_t = 5)]
    warm_up: u64,
    /// By how much the shop's memory may differ between the first and the last ten seconds, in KiB.
    #[arg(long, default_value_t = 1_024)]
    allowed_kib: u64,
}

/// The shop, as a process of its own. It is killed when this is dropped.
struct Shop {
    child: Child,
    address: String,
}

impl Shop {
    fn open(program: &PathBuf, store: &str) -> Self {
        let mut child = Command::new(program)
            .env("CLINCH_STORE", store)
            .env("SHOP_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shop can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came of a request: its status, or none, and its time from when it should have been sent.
type Answer = (Option<StatusCode>, Duration);

type Http = Client<HttpConnector, Full<Bytes>>;

async fn submit(http: Arc<Http>, target: Arc<str>, number: u64, due: Instant) -> Answer {
    // The last of a set is the one before it once more, but for its timestamp, which does not count.
    let item = if number % SET == SET - 1 { number - 1 } else { number } + 1;
    let request = Request::post(format!("{target}/orders"))
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer user-{}", item % 1_000))
        .body(Full::from(format!(r#"{{"item": {item}, "timestamp": {number}}}"#)))
        .unwrap();
    let answered = tokio::time::timeout(PATIENCE, async {
        let response = http.request(request).await.ok()?;
        let status = response.status();
        response.into_body().collect().await.ok()?;
        Some(status)
    });
    (answered.await.ok().flatten(), due.elapsed())
}

/// Sends requests at the rate, whatever becomes of those before, and gathers the answers.
async fn steady(
    shop: &Shop,
    from: u64,
    count: u64,
    rate: u64,
    told: impl Fn(u64),
) -> (Vec<Answer>, Vec<u64>) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let http = Arc::new(Client::builder(TokioExecutor::new()).build(connector));
    let target: Arc<str> = shop.address.as_str().into();
    let (sender, mut answers) = mpsc::unbounded_channel();
    let began = Instant::now();
    let mut resident = Vec::new();
    for n in 0..count {
        let due = began + Duration::from_nanos(n * 1_000_000_000 / rate);
        sleep_until(due).await;
        let (http, target, sender) = (http.clone(), target.clone(), sender.clone());
        tokio::spawn(async move { sender.send(submit(http, target, from + n, due).await) });
        if n % rate == rate - 1 {
            resident.push(shop.resident_kib());
            told(n + 1);
        }
    }
    drop(sender);
    let mut all = Vec::new();
    while let Some(answer) = answers.recv().await {
        all.push(answer);
    }
    (all, resident)
}

pub(crate) async fn run(args: &Args) -> bool {
    let server = RedisServer::start();
    let shop = Shop::open(&args.service, &server.url());
    let shown = std::io::stderr().is_terminal();
    let count = args.rate * args.seconds;
    steady(&shop, 0, args.rate * args.warm_up, args.rate, |_| {}).await;
    let (answers, resident) = steady(&shop, args.rate * args.warm_up, count, args.rate, |sent| {
        if shown {
            eprint!("\r{:>3} %  {sent} sent, {} KiB ", sent * 100 / count, shop.resident_kib());
        }
    })
    .await;
    if shown {
        eprintln!();
    }
    let of = |status: StatusCode| answers.iter().filter(|(found, _)| *found == Some(status)).count() as u64;
    let (accepted, refused) = (of(StatusCode::OK), of(StatusCode::TOO_MANY_REQUESTS));
    let failed = count - accepted - refused;
    let mut times: Vec<Duration> = answers.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
    let at = |share: usize| times[(times.len() * share / 1_000).min(times.len() - 1)];
    let average = |some: &[u64]| some.iter().sum::<u64>() / some.len() as u64;
    let window = resident.len().min(10);
    let (first, last) = (average(&resident[..window]), average(&resident[resident.len() - window..]));
    println!(
        "{} of {count} sent at {} a second: {accepted} accepted, {refused} refused as duplicates, {failed} failed; mean {mean:.1?}, \
         p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, longest {:.1?}; the shop's memory: {first} KiB in the first {window} s, {last} KiB in \
         the last",
        answers.len(),
        args.rate,
        at(500),
        at(990),
        at(999),
        at(1_000),
    );
    answers.len() as u64 == count
        && failed == 0
        && refused == count / SET
        && mean < Duration::from_millis(50)
        && at(990) < Duration::from_millis(100)
        && last <= first + args.allowed_kib
}
