//! The rules of digestd: what a period is, what an operation may do next, and the workflows that
//! drive it on the engine.
//!
//! Nothing here does I/O, reads a clock or draws randomness of its own: time, randomness and every
//! answer of the outside world come in as arguments. Open [`operation`] to read the whole promise
//! without knowing Temporal.

pub mod activities;
pub mod attributes;
pub mod customer;
pub mod operation;
pub mod page;
pub mod run;
pub mod signal;
mod timer;
pub mod weekly;

use operation::Period;

/// The id of the workflow of `campaign`'s run in `period`: `digest-run:2026-W42`.
#[must_use]
pub fn run_id(campaign: &str, period: Period) -> String {
    format!("{campaign}-run:{period}")
}
