//! API and console on a real socket and a real ledger: who is let in, what is answered, and that
//! nothing private is.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail by a panic, and prints what it has shown"
)]

#[path = "http/any_client.rs"]
mod any_client;
#[path = "http/api.rs"]
mod api;
#[path = "http/browser.rs"]
mod browser;
#[path = "http/console.rs"]
mod console;
#[path = "http/doors.rs"]
mod doors;
#[path = "http/house.rs"]
mod house;
