//! A function has no `self`.

#[clinch::lock(key = "order:{self.tenant}")]
async fn pay() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
