//! The commands: one file each.

mod completions;
mod demo;
mod dry_run;
mod init;
mod policy;
pub mod run;
mod setup;
mod show;
mod status;
mod worker;

use crate::cli::{Cli, Command, Exit};
use crate::config::Config;

/// Runs the command that `cli` asks for.
///
/// # Errors
/// Whatever stopped it; [`Exit::of`] says which exit code that is.
pub async fn run(cli: Cli) -> anyhow::Result<Exit> {
    let config = || Config::load(&cli.config);
    match cli.command {
        Command::Demo(args) => demo::run(&args).await,
        Command::Init(args) => init::run(&args),
        Command::Setup(args) => setup::run(config()?, args).await,
        Command::Worker(_) => worker::run(config()?).await,
        Command::Run(args) => run::run(config()?, args).await,
        Command::Status(args) => status::run(config()?, args).await,
        Command::Show(args) => show::run(config()?, args).await,
        Command::Policy(args) => policy::run(&config()?, &args),
        Command::Completions(args) => completions::run(&args),
    }
}
