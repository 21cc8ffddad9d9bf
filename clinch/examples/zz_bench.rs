use clinch::Key;
use clinch::lease::{Attempt, Claim, Patience, Token};
use clinch::store::Store;
use clinch::stores::memory::MemoryStore;
use std::sync::Arc;
use std::time::{Duration, Instant};
fn tok(i: u64) -> Token {
    Token::from_text(format!("{i:032x}@h:1:"))
}
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ttl = Duration::from_secs(30);
    for round in 0..5 {
        let n = 1_000_000u64;
        let keys: Vec<Key> = (0..1000).map(|i| Key::new(format!("cycle:{i}")).unwrap()).collect();
        let t = Instant::now();
        for i in 0..n {
            let a = Attempt::one(tok(i), Claim::exclusive(keys[(i % 1000) as usize].clone(), ttl));
            store.acquire(&a).await.unwrap();
            store.release(&a).await.unwrap();
        }
        let plain = t.elapsed();
        let t = Instant::now();
        for i in 0..n / 4 {
            let k = (i % 999) as usize;
            let a = Attempt::new(
                tok(i),
                vec![
                    Claim::exclusive(keys[k].clone(), ttl).fenced(clinch::Fence::new(0)),
                    Claim::exclusive(keys[k + 1].clone(), ttl),
                ],
            )
            .unwrap();
            store.acquire(&a).await.unwrap();
            store.renew(&a).await.unwrap();
            store.release(&a).await.unwrap();
        }
        let two = t.elapsed();
        let t = Instant::now();
        for i in 0..n / 4 {
            let p = Patience::Queue { until: tokio::time::Instant::now() + ttl, confirm: ttl };
            let a = Attempt::one(tok(2 * i), Claim::exclusive(keys[1].clone(), ttl)).with_patience(p);
            let b = Attempt::one(tok(2 * i + 1), Claim::exclusive(keys[1].clone(), ttl)).with_patience(p);
            store.acquire(&a).await.unwrap();
            store.acquire(&b).await.unwrap();
            store.release(&a).await.unwrap();
            store.acquire(&b).await.unwrap();
            store.release(&b).await.unwrap();
        }
        let q = t.elapsed();
        println!(
            "{round}: plain {:.0} ns, two {:.0} ns, queue {:.0} ns",
            plain.as_nanos() as f64 / n as f64,
            two.as_nanos() as f64 / (n / 4) as f64,
            q.as_nanos() as f64 / (n / 4) as f64
        );
    }
}
