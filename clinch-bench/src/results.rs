//! What came out: a row for each contender of a scenario, and a goal for each number that was to be reached.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::measure::Spread;
use crate::peers::Kind;

/// One contender in one scenario.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) scenario: &'static str,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) unit: &'static str,
    pub(crate) rate: Spread,
    /// To the reference's rate.
    pub(crate) ratio: Option<f64>,
    /// Commands on the wire, for each operation.
    pub(crate) commands: Option<f64>,
    pub(crate) connections: Option<u64>,
    /// CPU of the server and of this process, for each operation.
    pub(crate) server_us: Option<f64>,
    pub(crate) client_us: Option<f64>,
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) wrong: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// A number that was to be reached.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) scenario: &'static str,
    pub(crate) what: String,
    pub(crate) seen: f64,
    pub(crate) wanted: f64,
    /// Whether more is better.
    pub(crate) at_least: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    pub(crate) goals: Vec<Goal>,
    /// About everything.
    pub(crate) notes: Vec<String>,
}

impl Row {
    pub(crate) fn new(scenario: &'static str, name: &str, kind: Kind, unit: &'static str) -> Self {
        Self {
            scenario,
            name: name.to_owned(),
            kind,
            unit,
            rate: Spread::default(),
            ratio: None,
            commands: None,
            connections: None,
            server_us: None,
            client_us: None,
            figures: BTreeMap::new(),
            wrong: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Whether this is somebody whose mistakes are ours.
    const fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Clinch | Kind::Reference)
    }
}

impl Goal {
    pub(crate) fn at_least(scenario: &'static str, what: impl Into<String>, seen: f64, wanted: f64) -> Self {
        Self { scenario, what: what.into(), seen, wanted, at_least: true }
    }

    pub(crate) fn at_most(scenario: &'static str, what: impl Into<String>, seen: f64, wanted: f64) -> Self {
        Self { at_least: false, ..Self::at_least(scenario, what, seen, wanted) }
    }

    pub(crate) fn is_reached(&self) -> bool {
        if self.at_least { self.seen >= self.wanted } else { self.seen <= self.wanted }
    }
}

impl Results {
    /// What must not have happened to Clinch or to the reference.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let ours = self.rows.iter().filter(|row| row.is_ours());
        ours.flat_map(|row| row.wrong.iter().map(|what| format!("{} {}: {what}", row.scenario, row.name)))
            .collect()
    }

    pub(crate) fn row(&self, scenario: &str, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.scenario == scenario && row.name == name)
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "scenario": row.scenario, "name": row.name, "kind": format!("{:?}", row.kind), "unit": row.unit,
                "rate": { "least": row.rate.least, "median": row.rate.median, "most": row.rate.most },
                "ratio": row.ratio, "commands": row.commands, "connections": row.connections,
                "server_us": row.server_us, "client_us": row.client_us, "figures": row.figures,
                "wrong": row.wrong, "notes": row.notes,
            })
        });
        let goals = self.goals.iter().map(|goal| {
            json!({
                "scenario": goal.scenario, "what": goal.what, "seen": goal.seen, "wanted": goal.wanted,
                "at_least": goal.at_least, "reached": goal.is_reached(),
            })
        });
        json!({
            "rows": rows.collect::<Vec<_>>(), "goals": goals.collect::<Vec<_>>(), "notes": self.notes,
            "wrong": self.wrong(),
        })
    }
}
