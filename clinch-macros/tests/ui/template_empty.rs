//! A key without a name.

#[clinch::lock(key = "")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
