//! The gates against the real world: eligibility, delivery, cleanup, and the parts they stand on:
//! the ledger, the source, the message and the providers.

pub mod audit;
pub mod calendar;
pub mod cleanup;
pub mod crash;
pub mod delivery;
pub mod eligibility;
pub mod gates;
pub mod ledger;
pub mod message;
pub mod metrics;
pub mod provider;
pub mod reconciliation;
pub mod redacted;
pub mod refreeze;
pub mod source;
mod sqlite;
pub mod webhook;
