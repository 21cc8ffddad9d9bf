//! `clinch inspect`: who holds a key.

use clinch::Key;
use serde::Serialize;

use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::holder::{self, View};
use crate::listing::holders_of;
use crate::output::{Output, write, write_json};
use crate::runtime::on_one_thread;

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Inspect {
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    pub(crate) key: Key,
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    key: &'a str,
    held: bool,
    holders: Vec<View>,
}

impl Inspect {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(async { exit_of(self.inspect().await) })
    }

    async fn inspect(&self) -> Result<Exit, Failure> {
        let locks = self.engine.look().await?;
        let holders = holders_of(&locks, &self.key).await?;
        let exit = if holders.is_empty() { Exit::NO } else { Exit::OK };
        let written = if self.output.json {
            let held = !holders.is_empty();
            let answer =
                Answer { key: self.key.as_str(), held, holders: holders.iter().map(View::new).collect() };
            write_json(&answer)
        } else if holders.is_empty() {
            write(&format!("`{}` is free\n", self.key))
        } else {
            write(&holder::table(&holders).render(self.output))
        };
        // Whoever does not read the answer may still want the code.
        written.map_err(|failure| failure.quiet_with(exit))?;
        Ok(exit)
    }
}
