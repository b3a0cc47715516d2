//! The commands of an operator's day, against a real Temporal server, a real shop and a worker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking and report on the console"
)]

mod operate {
    mod bench;
    mod check;
    mod decide;
    mod missed;
    mod preview;
    mod restore;
    mod schedule;
}
