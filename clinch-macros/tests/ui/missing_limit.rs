//! A limit without a number.

#[clinch::limit(key = "export")]
async fn export() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
