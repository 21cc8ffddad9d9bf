//! A lease that is over before its answer has arrived.

#[clinch::lock(key = "order:{id}", ttl_ms = 9)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
