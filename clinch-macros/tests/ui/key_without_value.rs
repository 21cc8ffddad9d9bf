//! An option that is no flag.

#[clinch::lock(key)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
