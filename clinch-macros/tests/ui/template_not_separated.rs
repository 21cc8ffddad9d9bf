//! Two values that could run into each other.

#[clinch::lock(key = "order:{tenant}-{id}")]
async fn pay(tenant: u64, id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
