//! One suite that every adapter over HTTP passes, against an API that speaks its provider's dialect
//! over real sockets: what the adapter says about an attempt is compared with what was really taken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as tests do")]

#[macro_use]
#[path = "providers/bench.rs"]
mod bench;
#[path = "providers/batches.rs"]
mod batches;
#[path = "providers/moto.rs"]
mod moto;
#[path = "providers/real.rs"]
mod real;
#[path = "providers/senders.rs"]
mod senders;
#[path = "providers/suite.rs"]
mod suite;
#[path = "providers/twilio.rs"]
mod twilio;
