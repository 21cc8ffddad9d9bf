//! A strategy that there is not.

#[clinch::lock(key = "order:{id}", strategy = "fail")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
