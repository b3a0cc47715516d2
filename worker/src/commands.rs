//! The commands: one file each.

mod check;
mod completions;
mod dry_run;
mod hold;
mod init;
mod policy;
mod preview;
pub mod run;
mod schedule;
mod setup;
mod show;
mod status;
mod worker;

pub(crate) use schedule::differs as schedule_differs;

use crate::cli::{Cli, Command, Exit};
use crate::config::Config;

/// Runs the command that `cli` asks for.
///
/// # Errors
/// Whatever stopped it; [`Exit::of`] says which exit code that is.
pub async fn run(cli: Cli) -> anyhow::Result<Exit> {
    let config = || Config::load(&cli.config);
    match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(&cli.config, &args).await,
        Command::Setup(args) => setup::run(config()?, args).await,
        Command::Preview(args) => preview::run(config()?, args).await,
        Command::Worker(_) => worker::run(config()?).await,
        Command::Schedule(args) => schedule::run(config()?, args).await,
        Command::Run(args) => run::run(config()?, args).await,
        Command::Status(args) => status::run(config()?, args).await,
        Command::Show(args) => show::run(config()?, args).await,
        Command::Hold(args) => hold::hold(config()?, args).await,
        Command::Resume(args) => hold::resume(config()?, args).await,
        Command::Cancel(args) => hold::cancel(config()?, args).await,
        Command::Policy(args) => policy::run(&config()?, &args),
        Command::Completions(args) => completions::run(&args),
    }
}
