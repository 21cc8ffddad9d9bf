//! `clinch ls`: who holds what.

use std::time::Duration;

use clinch::{Holder, LockManager};
use tokio::time::sleep;

use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::holder::{self, View};
use crate::listing::Pages;
use crate::output::{Output, write, write_json};
use crate::pattern::Pattern;
use crate::runtime::on_one_thread;

/// Makes room for the next picture: all of the screen, from its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Ls {
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    /// Keys that it does not match are left out.
    pub(crate) pattern: Option<Pattern>,
    /// Again and again, with this pause.
    pub(crate) watch: Option<Duration>,
    /// Whether what was shown before is wiped away first.
    pub(crate) clear: bool,
}

impl Ls {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(async { exit_of(self.list().await) })
    }

    async fn list(&self) -> Result<Exit, Failure> {
        let mut to_come = self.engine.own_file_to_come().is_some();
        let mut locks = self.engine.look().await?;
        if self.output.json {
            return self.lines(&locks).await;
        }
        loop {
            let mut text = self.table(&locks).await?;
            if self.clear {
                text.insert_str(0, CLEAR);
            }
            write(&text)?;
            let Some(pause) = self.watch else { return Ok(Exit::OK) };
            sleep(pause).await;
            if to_come && self.engine.own_file_to_come().is_none() {
                locks = self.engine.look_closely().await?;
                to_come = false;
            }
            if !self.clear {
                write("\n")?;
            }
        }
    }

    /// A line each as they come: there may be more than fit in memory.
    async fn lines(&self, locks: &LockManager) -> Result<Exit, Failure> {
        let mut pages = Pages::of(locks);
        while let Some(holders) = pages.next().await? {
            for holder in holders.iter().filter(|holder| self.wants(holder)) {
                write_json(&View::new(holder))?;
            }
        }
        Ok(Exit::OK)
    }

    async fn table(&self, locks: &LockManager) -> Result<String, Failure> {
        let (mut pages, mut holders) = (Pages::of(locks), Vec::new());
        while let Some(page) = pages.next().await? {
            holders.extend(page.into_iter().filter(|holder| self.wants(holder)));
        }
        // A page may show again what an earlier one has shown.
        holders.sort_by(|a, b| (a.on(), a.token()).cmp(&(b.on(), b.token())));
        holders.dedup_by(|a, b| (a.on(), a.token()) == (b.on(), b.token()));
        if holders.is_empty() {
            let what =
                if self.pattern.is_some() { "nothing that matches is held" } else { "nothing is held" };
            return Ok(format!("{what}\n"));
        }
        Ok(holder::table(&holders).render(self.output))
    }

    fn wants(&self, holder: &Holder) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(holder.on().key.as_str()))
    }
}
