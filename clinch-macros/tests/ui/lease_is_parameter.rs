//! The variable for the lease would hide a parameter.

#[clinch::lock(key = "order:{id}", lease = id)]
async fn pay(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
