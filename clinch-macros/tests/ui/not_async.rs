//! A function that cannot wait.

#[clinch::lock(key = "order:{id}")]
fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
