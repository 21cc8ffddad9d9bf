//! Nobody may run.

#[clinch::limit(key = "export", limit = 0)]
async fn export() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
