//! A waiter that spins.

#[clinch::lock(key = "order:{id}", wait = "1s", retry_ms = 0)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
