//! A lock on nothing.

#[clinch::lock(ttl = "10s")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
