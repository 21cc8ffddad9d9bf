//! A flag that is neither on nor off.

#[clinch::lock(key = "order:{id}", reentrant = 1)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
