//! Readers have no fence.

#[clinch::lock(key = "order:{id}", shared, fenced)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
