//! The threads that everything but workflows and SQLite runs on.

use std::io;
use std::num::NonZero;
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Runtime};

/// A runtime with a thread for every second core, and one at least: workflows and SQLite have threads
/// of their own, and to wake another thread costs more than most of what it would do.
///
/// # Errors
/// When the system gives no thread, or none of what it needs to wait for sockets.
pub fn runtime() -> io::Result<Runtime> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread().worker_threads((cores / 2).max(1)).enable_all().build()
}
