//! A function that could not tell of a refusal.

#[clinch::lock(key = "order:{id}")]
async fn pay(id: u64) {}

fn main() {}
