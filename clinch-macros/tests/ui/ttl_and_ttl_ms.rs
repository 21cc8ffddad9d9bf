//! One time in two ways.

#[clinch::lock(key = "order:{id}", ttl = "10s", ttl_ms = 10_000)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
