//! An interval in which nothing can happen.

#[clinch::prevent_duplicate(interval_ms = 0)]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
