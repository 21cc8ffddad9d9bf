//! A function that could not tell of a refusal.

#[clinch::prevent_duplicate]
async fn create(id: u64) -> (u64, bool) {
    (id, true)
}

fn main() {}
