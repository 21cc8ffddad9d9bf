//! A parameter without a name.

#[clinch::prevent_duplicate(exclude_params = ["timestamp", ""])]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
