//! A method is not called by a request that would know the user.

struct Shop;

impl Shop {
    #[clinch::prevent_duplicate(interval = "5s")]
    async fn create(&self, amount: u64) -> Result<u64, clinch::Error> {
        Ok(amount)
    }
}

fn main() {}
