//! `digestd demo`: everything embedded, to look at.

use crate::cli::Exit;
use crate::cli::operate::DemoArgs;
use crate::demo::{self, Interrupts, Options};
use crate::output;

/// Runs the demo. The exit code is 0 where it stayed up until Ctrl-C; with `--exit` it is that of
/// the run, so 4 as one message waits for a human.
///
/// # Errors
/// What kept it from starting or going on, naming the cure.
pub(super) async fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    if let Some(point) = digest_activities::crash::armed().map_err(anyhow::Error::msg)? {
        output::say(&format!(
            "CRASH POINT {point} IS ARMED by {}: this process will end by SIGKILL",
            digest_activities::crash::VARIABLE
        ))?;
    }
    let options = Options { customers: args.customers, exit: args.exit, json: args.json };
    demo::run(options, Interrupts::listen()?).await
}
