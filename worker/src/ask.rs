//! Asks before something is decided.

use crate::cli::UsageError;
use std::io::{self, IsTerminal, Write};

/// Asks `question` on the terminal; returns whether the answer is yes. `yes` answers it. Where
/// nobody can be asked, or standard input is read for something else (`taken`), that is said.
///
/// # Errors
/// [`UsageError`] when nobody can be asked; what the system says when the terminal fails.
pub fn confirm(question: &str, yes: bool, taken: bool) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if taken || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let why = if taken { "standard input holds the keys" } else { "this is no terminal" };
        return Err(UsageError(format!(
            "nothing was done: {why}, so nobody can be asked; look at the above, and add --yes"
        ))
        .into());
    }
    write!(io::stderr().lock(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
