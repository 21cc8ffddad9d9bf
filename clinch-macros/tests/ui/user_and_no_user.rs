//! A user that does not count.

#[clinch::prevent_duplicate(user = "{id}", include_user = false)]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
