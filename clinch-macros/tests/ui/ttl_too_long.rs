//! Longer than a manager allows unless it is told to.

#[clinch::limit(key = "export", limit = 8, ttl = "25h")]
async fn export() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
