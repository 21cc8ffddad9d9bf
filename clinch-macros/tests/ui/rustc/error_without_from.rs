//! An error type that a refusal cannot become: rustc says so, at the return type.

struct Failed;

#[clinch::lock(key = "order:{id}")]
async fn pay(id: u64) -> Result<u64, Failed> {
    if id == 0 { Err(Failed) } else { Ok(id) }
}

fn main() {}
