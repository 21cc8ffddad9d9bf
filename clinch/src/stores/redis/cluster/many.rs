//! Many steps at once: those of one server in one exchange, all servers at the same time.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::Instant;

use super::store::RedisClusterStore;
use super::topology::Node;
use super::{Trip, is_out_of_reach, redirect};
use crate::lease::Attempt;
use crate::store::{Effect, StoreError};
use crate::stores::in_flight::Purpose;
use crate::stores::redis::scripts::Call;
use crate::stores::redis::{BATCH, came_back, going_out};

/// What goes to one server at once: scripts, the slots of their keys, and for an acquire its attempt.
struct Share<'a> {
    purpose: Purpose,
    slots: Vec<u16>,
    calls: Vec<Call>,
    attempts: Vec<Option<&'a Attempt>>,
}

impl RedisClusterStore {
    /// Runs scripts that have nothing to do with each other: those of one server in one exchange, all servers at the same
    /// time. What a server sends on goes its own way. With `acquires`, each is the acquire of that attempt. Tells for each when
    /// it went out.
    pub(super) async fn run_each(
        &self,
        purpose: Purpose,
        calls: Vec<(u16, Call)>,
        acquires: Option<&[&Attempt]>,
    ) -> Vec<(Result<Value, StoreError>, Option<Instant>)> {
        let by_server = self.by_server(calls.iter().map(|(slot, _)| *slot));
        let mut calls: Vec<_> =
            calls.into_iter().map(|(slot, call)| Some((slot, call.on_shards(self.sharded)))).collect();
        let shares = by_server.into_iter().map(|(node, places)| {
            let (slots, calls) = places.iter().filter_map(|place| calls.get_mut(*place)?.take()).unzip();
            let attempt = |place: &usize| acquires.and_then(|attempts| attempts.get(*place).copied());
            let attempts = places.iter().map(attempt).collect();
            let share = Share { purpose, slots, calls, attempts };
            async move { places.into_iter().zip(self.run_share(node, share).await).collect::<Vec<_>>() }
        });
        let mut all: Vec<_> = join_all(shares.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Runs one server's share.
    async fn run_share(
        &self,
        node: Option<Arc<Node>>,
        share: Share<'_>,
    ) -> Vec<(Result<Value, StoreError>, Option<Instant>)> {
        let answers = match &node {
            Some(node) => self.exchange(node, &share).await,
            None => share.calls.iter().map(|_| None).collect(),
        };
        let share = &share;
        let ways = answers.into_iter().enumerate().map(|(at, answer)| async move {
            match answer {
                Some(answer) => answer,
                // On its own way.
                None => {
                    let mut trip = Trip { acquires: share.attempts[at], ..Trip::default() };
                    let (slot, call) = (share.slots[at], &share.calls[at]);
                    let answer = self.cluster.run(share.purpose, slot, call, &mut trip).await;
                    (answer, trip.sent_at)
                }
            }
        });
        join_all(ways).await
    }

    /// One exchange with one server; `None` for what must go another way.
    async fn exchange(
        &self,
        node: &Node,
        share: &Share<'_>,
    ) -> Vec<Option<(Result<Value, StoreError>, Option<Instant>)>> {
        let (mut over, mut sent_at) = (None, None);
        let answers = node.link.run_each(share.purpose, &share.calls, |connection| {
            share.attempts.iter().flatten().for_each(|attempt| {
                going_out(attempt, connection);
            });
            over = Some(connection.clone());
            sent_at = Some(Instant::now());
        });
        let answers =
            answers.await.unwrap_or_else(|error| share.calls.iter().map(|_| Err(error.clone())).collect());
        let error_of = |answer: &Result<Value, StoreError>| answer.as_ref().err().cloned();
        if answers.iter().filter_map(error_of).any(|error| error.effect() == Effect::Unknown) {
            self.cluster.refresh_soon();
        }
        let sorted = |(attempt, answer): (&Option<&Attempt>, Result<Value, StoreError>)| {
            let error = answer.as_ref().err();
            if let (Some(attempt), Some(connection)) = (attempt, &over) {
                came_back(attempt, connection, error);
            }
            let elsewhere =
                |error: &StoreError| redirect(error, &node.place).is_some() || is_out_of_reach(error);
            if error.is_some_and(elsewhere) { None } else { Some((answer, sent_at)) }
        };
        share.attempts.iter().zip(answers).map(sorted).collect()
    }

    /// The places of these slots, by the server that has them; at most so many at a time.
    fn by_server(&self, slots: impl Iterator<Item = u16>) -> Vec<(Option<Arc<Node>>, Vec<usize>)> {
        let mut by_server: Vec<(Option<Arc<Node>>, Vec<usize>)> = Vec::new();
        let topology = self.cluster.topology();
        for (place, slot) in slots.enumerate() {
            let node = topology.owner(slot);
            let same = |(other, places): &&mut (Option<Arc<Node>>, Vec<usize>)| {
                other.as_ref().map(|node| &node.at) == node.map(|node| &node.at) && places.len() < BATCH
            };
            match by_server.iter_mut().find(same) {
                Some((_, places)) => places.push(place),
                None => by_server.push((node.cloned(), vec![place])),
            }
        }
        by_server
    }
}
