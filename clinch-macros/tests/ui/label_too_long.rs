//! A label that the manager would refuse.

#[clinch::lock(
    key = "order:{id}",
    label = "a label that is so long that it is rather a story than a label for people",
)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
