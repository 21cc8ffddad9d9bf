//! A user that no parameter binds.

#[clinch::prevent_duplicate(user = "{user_id}")]
async fn create(user: u64, amount: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
