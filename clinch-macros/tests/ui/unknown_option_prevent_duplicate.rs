//! A name that no duplicate guard has.

#[clinch::prevent_duplicate(key = "order")]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
