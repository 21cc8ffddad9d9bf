//! A name that no lock has.

#[clinch::lock(key = "order:{id}", tll = "10s")]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
