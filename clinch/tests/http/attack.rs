//! What a second attack found: on requests inside of requests, on guards that say different things of one submission, and on
//! what a body's readers do to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use clinch::Error;
use clinch::LockOptions;
use clinch::submit::{DuplicatePolicy, IdempotencyPolicy, Identity, LockPolicy, ReleaseWhen, Submission};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::hardening::{req, send, web};

/// What a user sent is not shown.
#[test]
fn the_debug_of_a_submission_shows_nothing_of_its_parameters() {
    let submission = Submission::of("pay").user(Identity::user("alice")).param("card", &"4111 1111").unwrap();
    let shown = format!("{submission:?}");
    assert!(shown.contains("pay") && !shown.contains("4111") && !shown.contains("alice"), "{shown}");
}
