//! Five what?

#[clinch::prevent_duplicate(interval = "5")]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
