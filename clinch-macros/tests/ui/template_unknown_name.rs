//! A name that no parameter binds: the pattern binds `order_id` and `tenant`.

struct Path<T>(T);

#[clinch::lock(key = "order:{id}")]
async fn pay(Path((tenant, order_id)): Path<(u64, u64)>) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
