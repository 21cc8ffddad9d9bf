//! Closed for longer than the interval.

#[clinch::prevent_duplicate(interval = "2s", min_hold = "3s")]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
