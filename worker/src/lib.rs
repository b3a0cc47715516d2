//! digestd: one digest per customer and period, on top of Temporal.

pub mod engine;
