//! The commands: one file each.

mod completions;
mod init;
mod policy;

use crate::cli::{Cli, Command, Exit};
use crate::config::Config;

/// Runs the command that `cli` asks for.
///
/// # Errors
/// Whatever stopped it; [`Exit::of`] says which exit code that is.
#[expect(clippy::unused_async, reason = "the commands that talk to ledger and engine wait")]
pub async fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Policy(args) => policy::run(&Config::load(&cli.config)?, &args),
        Command::Completions(args) => completions::run(&args),
    }
}
