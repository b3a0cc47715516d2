//! `digestd demo`: everything embedded, to look at.

use crate::cli::Exit;
use crate::cli::operate::DemoArgs;
use crate::demo::{self, Interrupts, Options};

/// Runs the demo. The exit code is 0 where it stayed up until Ctrl-C; with `--exit` it is that of
/// the run, so 4 as one message waits for a human.
///
/// # Errors
/// What kept it from starting or going on, naming the cure.
pub(super) async fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    let options = Options { customers: args.customers, exit: args.exit, json: args.json };
    demo::run(options, Interrupts::listen()?).await
}
