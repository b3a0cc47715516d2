//! Asking a person before something is done.

use crate::cli::UsageError;
use crate::output;
use std::io::{self, BufRead, IsTerminal};

/// Shows what will be done and asks whether to do it; `yes` answers beforehand.
///
/// # Errors
/// [`UsageError`] where nobody is there to answer.
pub fn agreed(what: &str, yes: bool) -> anyhow::Result<bool> {
    output::say(what)?;
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(UsageError(
            "nobody is there to answer, and nothing was done; repeat the command with --yes"
                .to_owned(),
        )
        .into());
    }
    output::say("Go on? [y/N]")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
