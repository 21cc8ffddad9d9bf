//! A guard whose name is none.

#[clinch::lock(key = "order:{id}", name = "")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
