//! The decision core under every interleaving, up to a bound, of a hostile world around it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail by a panic, and reports what it has checked on the console"
)]

mod model {
    mod bounds;
    mod check;
    mod cover;
    mod effects;
    mod fair;
    mod proof;
    mod record;
    mod rules;
    mod world;
}
