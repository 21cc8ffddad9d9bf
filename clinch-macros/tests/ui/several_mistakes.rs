//! All of them are told at once.

#[clinch::lock(key = "order:{id", tll = "10s", status = 200)]
fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
