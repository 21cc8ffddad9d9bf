//! A name that no limit has.

#[clinch::limit(key = "export", limit = 8, shared)]
async fn export() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
