//! The commands: one file each.

mod audit;
mod canary;
mod check;
mod cleanup;
mod completions;
mod dead_letters;
mod demo;
mod dry_run;
mod forget;
mod hold;
mod init;
mod man;
mod policy;
mod preview;
mod replay;
mod resolve;
pub mod run;
mod schedule;
mod setup;
mod show;
mod status;
mod suppressions;
mod unknown;
mod worker;

pub(crate) use schedule::differs as schedule_differs;

use crate::cli::{Cli, Command, Exit};
use crate::config::Config;
use crate::output;
use digest_activities::crash;
use digest_activities::ledger::{Ledger, LedgerError};
use digest_workflows::operation::Period;

/// Runs the command that `cli` asks for.
///
/// # Errors
/// Whatever stopped it; [`Exit::of`] says which exit code that is.
pub async fn run(cli: Cli) -> anyhow::Result<Exit> {
    announce_crash_point()?;
    let config = || Config::load(&cli.config);
    match cli.command {
        Command::Demo(args) => demo::run(&args).await,
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(&cli.config, &args).await,
        Command::Setup(args) => setup::run(config()?, args).await,
        Command::Preview(args) => preview::run(config()?, args).await,
        Command::Worker(_) => worker::run(config()?).await,
        Command::Schedule(args) => Box::pin(schedule::run(config()?, args)).await,
        Command::Run(args) => run::run(config()?, args).await,
        Command::Canary(args) => canary::run(config()?, args).await,
        Command::Status(args) => status::run(config()?, args).await,
        Command::Show(args) => show::run(config()?, args).await,
        Command::Audit(args) => audit::run(config()?, args).await,
        Command::Hold(args) => hold::hold(config()?, args).await,
        Command::Resume(args) => hold::resume(config()?, args).await,
        Command::Cancel(args) => hold::cancel(config()?, args).await,
        Command::Unknown(args) => unknown::run(config()?, args).await,
        Command::Resolve(args) => resolve::run(config()?, *args).await,
        Command::DeadLetters(args) => dead_letters::run(config()?, args).await,
        Command::Replay(args) => replay::run(config()?, *args).await,
        Command::Cleanup(args) => cleanup::run(config()?, args).await,
        Command::Forget(args) => forget::run(config()?, args).await,
        Command::Suppressions(args) => suppressions::run(config()?, args).await,
        Command::Policy(args) => policy::run(&config()?, &args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Says loudly that this process is to end in the middle of something, if a test has asked for it.
fn announce_crash_point() -> anyhow::Result<()> {
    if let Some(point) = crash::armed().map_err(anyhow::Error::msg)? {
        output::say(&format!(
            "CRASH POINT {point} IS ARMED by {}: this process will end by SIGKILL",
            crash::VARIABLE
        ))?;
    }
    Ok(())
}

/// Refuses a period that the ledger knows no run of: a mistyped one must not look like one without
/// anything to do.
async fn must_exist(
    ledger: &Ledger,
    campaign: &str,
    period: Option<Period>,
) -> Result<(), LedgerError> {
    let Some(period) = period else { return Ok(()) };
    match ledger.run(campaign, period).await? {
        Some(_) => Ok(()),
        None => Err(LedgerError::NoSuchRun {
            campaign: campaign.to_owned(),
            period: period.to_string(),
        }),
    }
}

/// A command line to copy, on the configuration in use.
pub(crate) fn invocation(config: &Config, rest: &str) -> String {
    let file = config.file.display().to_string();
    if file == "digestd.toml" {
        return format!("digestd {rest}");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let file =
        if file.chars().all(plain) { file } else { format!("'{}'", file.replace('\'', "'\\''")) };
    format!("digestd --config {file} {rest}")
}
