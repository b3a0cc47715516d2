//! digestd sends every customer exactly one digest per period.

use clap::Parser;
use digestd::cli::{Cli, Command, Exit};
use digestd::{commands, output, threads};
use std::process::ExitCode;

fn main() -> ExitCode {
    match threads::runtime() {
        Ok(runtime) => runtime.block_on(run()),
        Err(error) => {
            output::print_error(&anyhow::Error::new(error).context("cannot start any thread"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> ExitCode {
    // One TLS provider for every connection. Only a second installation can fail.
    rustls::crypto::ring::default_provider().install_default().ok();
    let cli = Cli::parse();
    // The demo draws on standard error, and sends its log to a file.
    if !matches!(cli.command, Command::Demo(_)) {
        output::log_to_stderr();
    }
    match Box::pin(commands::run(cli)).await {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::print_error(&error);
            Exit::of(&error).into()
        }
    }
}
