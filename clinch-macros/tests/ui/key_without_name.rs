//! A template that stands alone.

#[clinch::lock("order:{id}")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
