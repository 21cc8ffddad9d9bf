//! A value that cannot be written: rustc says so, at the template.

struct Request;

#[clinch::lock(key = "order:{req}")]
async fn pay(req: Request) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
