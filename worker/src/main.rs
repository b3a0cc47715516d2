//! digestd sends every customer exactly one digest per period.

use clap::Parser;
use digestd::cli::{Cli, Exit};
use digestd::{commands, output};
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // One TLS provider for every connection. Only a second installation can fail.
    rustls::crypto::ring::default_provider().install_default().ok();
    output::log_to_stderr();
    match Box::pin(commands::run(Cli::parse())).await {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::print_error(&error);
            Exit::of(&error).into()
        }
    }
}
