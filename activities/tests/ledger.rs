//! The ledger's conformance suite: every behaviour on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test and its helpers fail by panicking")]

#[path = "ledger/attempts.rs"]
mod attempts;
#[path = "ledger/audit.rs"]
mod audit;
#[path = "ledger/batches.rs"]
mod batches;
#[path = "ledger/bench.rs"]
mod bench;
#[path = "ledger/canary.rs"]
mod canary;
#[path = "ledger/content.rs"]
mod content;
#[path = "ledger/counted.rs"]
mod counted;
#[path = "ledger/crash.rs"]
mod crash;
#[path = "ledger/events.rs"]
mod events;
#[path = "ledger/figures.rs"]
mod figures;
#[path = "ledger/holds.rs"]
mod holds;
#[path = "ledger/model.rs"]
mod model;
#[path = "ledger/pace.rs"]
mod pace;
#[path = "ledger/plans.rs"]
mod plans;
#[path = "ledger/progress.rs"]
mod progress;
#[path = "ledger/publish.rs"]
mod publish;
#[path = "ledger/replay.rs"]
mod replay;
#[path = "ledger/reports.rs"]
mod reports;
#[path = "ledger/retention.rs"]
mod retention;
#[path = "ledger/runs.rs"]
mod runs;
#[path = "ledger/setup.rs"]
mod setup;
#[path = "ledger/suppressions.rs"]
mod suppressions;
#[path = "ledger/transitions.rs"]
mod transitions;
