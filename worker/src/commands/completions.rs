//! `digestd completions`: the completions of a shell, on standard output.

use crate::cli::operate::CompletionsArgs;
use crate::cli::{Cli, Exit};
use crate::output;
use clap::CommandFactory;

/// Prints the completions of the shell that `args` names.
pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "digestd", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Exit::Done)
}
