//! A guard around no function.

#[clinch::lock(key = "order")]
struct Order;

fn main() {}
