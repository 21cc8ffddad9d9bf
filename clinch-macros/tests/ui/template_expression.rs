//! An expression is no field path.

#[clinch::lock(key = "order:{id + 1}")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
