//! `digestd man`: the manual pages, made from the command line's own definition.

use crate::cli::operate::ManArgs;
use crate::cli::{Cli, Exit};
use crate::output;
use anyhow::Context;
use clap::CommandFactory;
use std::fs;

/// Prints the page of digestd(1), or writes it and one for each command into the folder that `args`
/// names. Pages of an earlier version are replaced.
pub(super) fn run(args: &ManArgs) -> anyhow::Result<Exit> {
    let command = Cli::command();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::print(&String::from_utf8(page)?)?;
        return Ok(Exit::Done);
    };
    let cannot = || format!("the manual pages cannot be written to {}", dir.display());
    fs::create_dir_all(dir).with_context(cannot)?;
    clap_mangen::generate_to(command, dir).with_context(cannot)?;
    output::print(&format!("wrote the manual pages to {}", dir.display()))?;
    Ok(Exit::Done)
}
