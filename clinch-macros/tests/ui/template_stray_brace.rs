//! A brace without its partner.

#[clinch::lock(key = "order:{id")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
