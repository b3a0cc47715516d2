//! `digestd check`: validates everything and connects to everything; changes and sends nothing.

use crate::check::{self, Line};
use crate::cli::Exit;
use crate::cli::read::CheckArgs;
use crate::output;
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    checks: &'a [Line],
}

/// Checks what the file at `path` configures and prints a line for each thing.
pub(super) async fn run(path: &Path, args: &CheckArgs) -> anyhow::Result<Exit> {
    let lines = check::everything(path).await;
    let exit = check::exit(&lines);
    if args.json {
        output::print_json(&Report { ok: exit == Exit::Done, checks: &lines })?;
    } else {
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        output::print(&text.join("\n"))?;
    }
    Ok(exit)
}
