//! A unit that there is not.

#[clinch::lock(key = "order:{id}", ttl = "10 fortnights")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
