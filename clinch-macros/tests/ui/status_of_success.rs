//! A refusal that looks like a success.

#[clinch::lock(key = "order:{id}", status = 200)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
