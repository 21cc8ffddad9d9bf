//! A guard around nothing.

trait Shop {
    #[clinch::lock(key = "order:{id}")]
    async fn pay(&self, id: u64) -> Result<(), clinch::Error>;
}

fn main() {}
