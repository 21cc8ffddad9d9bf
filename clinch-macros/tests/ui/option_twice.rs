//! The same option twice.

#[clinch::lock(key = "order:{id}", renew, wait = "1s", renew = false)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
