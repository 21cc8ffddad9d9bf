//! A word for the client that goes away that there is not.

#[clinch::prevent_duplicate(disconnect = "cancel")]
async fn create(id: u64) -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
