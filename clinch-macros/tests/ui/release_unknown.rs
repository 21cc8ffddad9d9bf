//! A word for the release that there is not.

#[clinch::prevent_duplicate(release = "on_success")]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
