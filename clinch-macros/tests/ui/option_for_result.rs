//! A function that could not tell of a refusal.

#[clinch::limit(key = "export", limit = 8)]
async fn export(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}
