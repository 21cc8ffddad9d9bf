//! What is behind `impl Trait` may be a `Result`, but nobody can see that.

#[clinch::limit(key = "export", limit = 8)]
async fn export(id: u64) -> impl std::fmt::Display {
    id
}

fn main() {}
