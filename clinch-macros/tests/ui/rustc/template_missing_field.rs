//! A field that the type does not have: rustc says so, at the template.

struct Request {
    customer: Customer,
}

struct Customer {
    id: u64,
}

#[clinch::lock(key = "order:{req.customer.name}")]
async fn pay(req: Request) -> Result<u64, clinch::Error> {
    Ok(req.customer.id)
}

fn main() {}
