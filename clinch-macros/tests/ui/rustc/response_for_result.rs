//! A type that only rustc can tell from a `Result`, which it does at the return type.

struct Html(String);

#[clinch::lock(key = "page:{id}")]
async fn page(id: u64) -> Html {
    Html(id.to_string())
}

fn main() {}
