//! Where the library is, is a path.

#[clinch::lock(key = "order", crate = "not a path")]
async fn pay() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
