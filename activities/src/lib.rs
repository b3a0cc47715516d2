//! The gates against the real world: eligibility, delivery, cleanup, and the parts they stand on:
//! the ledger, the source, the message and the providers.

pub mod ledger;
pub mod calendar;
pub mod message;
pub mod provider;
pub mod redacted;
pub mod source;
