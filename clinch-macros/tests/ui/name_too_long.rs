//! A name that the manager would refuse.

#[clinch::prevent_duplicate(name = "a name that is so long that it is rather a story than a name for a guard")]
async fn create() -> Result<(), clinch::Error> {
    Ok(())
}

fn main() {}
