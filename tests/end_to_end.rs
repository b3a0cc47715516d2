//! End to end: the real binary with a real Temporal server, real databases and real SMTP, its
//! processes killed with SIGKILL. What is asserted are invariants: what the provider's own record
//! says about each key, compared with what the ledger says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail by a panic, and reports its measurements on the console"
)]

mod end_to_end {
    mod acceptance;
    mod ambiguous;
    mod audit;
    mod batches;
    mod canary;
    mod chaos;
    mod clocks;
    mod concurrency;
    mod console;
    mod crash_points;
    mod disk;
    mod doubt;
    mod drain;
    mod engine_truth;
    mod histories;
    mod kills;
    mod late;
    mod lost_answers;
    mod measure;
    mod metrics;
    mod outage;
    mod panics;
    mod payloads;
    mod poison;
    mod privacy;
    mod provider;
    mod red_control;
    mod replays;
    mod rerun;
    mod restore;
    mod rolling;
    mod runs;
    mod same_bytes;
    mod signals;
    mod sms;
    mod starts;
    mod thousand;
    mod twice;
    mod upgrade;
    mod webhooks;
    mod world;
}
