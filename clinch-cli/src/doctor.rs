//! `clinch doctor`: a close look at the engine, and what to change.

use std::path::Path;
use std::time::Duration;

use clinch::store::{Diagnosis, Finding, Severity};
use serde::Serialize;
use tokio::time::timeout;

use crate::engine::{Engine, TO_COME, not_there_yet};
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::output::{Cell, Output, Paint, Table, write, write_json};
use crate::runtime::on_one_thread;

/// How long the look may take once the engine has answered.
const LOOK: Duration = Duration::from_secs(5);

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    /// How long the engine has to answer at all.
    pub(crate) patience: Duration,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    store: &'a str,
    prefix: &'a str,
    reachable: bool,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

impl Doctor {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(async { exit_of(self.look().await) })
    }

    async fn look(&self) -> Result<Exit, Failure> {
        let to_come = self.engine.own_file_to_come();
        let looked = match &to_come {
            Some(file) => Ok(first_lock_to_come(file)),
            None => self.diagnose().await,
        };
        let mut diagnosis = match looked {
            Ok(diagnosis) => diagnosis,
            Err(failure) if failure.exit() == Exit::UNAVAILABLE => {
                let mut diagnosis = Diagnosis::default();
                let usual = if self.engine.shown().starts_with("sqlite:") {
                    "see whether this is a file of Clinch's, and whether this user may read and write it and its directory"
                } else {
                    "see whether the engine runs, and whether its address and its credentials are right"
                };
                let remedy = failure.remedy().unwrap_or(usual);
                diagnosis.finding("unreachable", Severity::Error, failure.message(), remedy);
                diagnosis
            }
            Err(failure) => return Err(failure),
        };
        for problem in self.engine.config.unknown_variables() {
            let remedy = "correct its name, or unset it";
            diagnosis.finding("unknown_variable", Severity::Note, problem.as_str(), remedy);
        }
        let failed = diagnosis.findings.iter().any(|finding| finding.name == "unreachable");
        let reachable = to_come.is_none() && !failed;
        let exit = match diagnosis.worst() {
            _ if failed => Exit::UNAVAILABLE,
            None | Some(Severity::Note) => Exit::OK,
            Some(_) => Exit::NO,
        };
        let store = self.engine.shown();
        let written = if self.output.json {
            let prefix = self.engine.config.prefix.as_str();
            write_json(&Report { store: &store, prefix, reachable, diagnosis: &diagnosis })
        } else {
            write(&self.text(&store, &diagnosis))
        };
        written.map_err(|failure| failure.quiet_with(exit))?;
        Ok(exit)
    }

    async fn diagnose(&self) -> Result<Diagnosis, Failure> {
        // Within the patience, whatever the configuration allows.
        let locks = timeout(self.patience, self.engine.look_closely()).await.unwrap_or_else(|_| {
            let what = format!("no answer from {} within {:?}", self.engine.shown(), self.patience);
            Err(Failure::new(Exit::UNAVAILABLE, what))
        })?;
        Ok(locks.diagnose(LOOK).await)
    }

    fn text(&self, store: &str, diagnosis: &Diagnosis) -> String {
        let mut table = Table::new(&["FACT", "VALUE"]);
        table.row(vec![Cell::new("store"), Cell::new(store)]);
        for fact in &diagnosis.facts {
            let value = match (&fact.value, &fact.unknown) {
                (Some(value), _) => Cell::new(value),
                (None, why) => {
                    let why = why.as_deref().unwrap_or("nobody tells");
                    Cell::new(format!("not known: {why}")).in_colour(Paint::Dim)
                }
            };
            table.row(vec![Cell::new(fact.name), value]);
        }
        let mut text = table.render(self.output);
        text.push('\n');
        if diagnosis.findings.is_empty() {
            text += &self.output.paint(Paint::Green, "nothing to change");
            text.push('\n');
        }
        // The worst first.
        let mut findings: Vec<&Finding> = diagnosis.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for finding in findings {
            text += &self.finding(finding);
        }
        text
    }

    fn finding(&self, finding: &Finding) -> String {
        let paint = match finding.severity {
            Severity::Error => Paint::Red,
            Severity::Warning => Paint::Yellow,
            _ => Paint::Cyan,
        };
        let severity = self.output.paint(paint, finding.severity.word());
        let harmless = |text: &str| text.replace(char::is_control, "?");
        let (problem, remedy) = (harmless(&finding.problem), harmless(&finding.remedy));
        format!("{severity}: {}: {problem}\n  to change: {remedy}\n", finding.name)
    }
}

/// Before this user's first lock there is no file to look at, and nothing is wrong with that.
fn first_lock_to_come(file: &Path) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    diagnosis.finding("no_file_yet", Severity::Note, not_there_yet(file), TO_COME);
    diagnosis
}
