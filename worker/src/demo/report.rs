//! What the demo says when the run is over: the books, the one that waits for a human, and the exact
//! commands that decide about it.

use super::cast::{Cast, Part};
use super::story::{Story, customer};
use crate::config::Engine;
use crate::engine::binary::{Binary, Place};
use digest_activities::ledger::{OperationLine, RunStatus};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The report.
pub(super) struct Report<'a> {
    pub(super) status: &'a RunStatus,
    /// From the start of the process.
    pub(super) took: Duration,
    pub(super) story: &'a Story,
    pub(super) cast: Cast,
    /// How many messages the provider accepted, and how many keys it accepted twice.
    pub(super) accepted: Option<(usize, usize)>,
    /// The one that waits for a human.
    pub(super) waiting: Option<&'a OperationLine>,
    pub(super) shell: Shell,
    pub(super) provider_log: &'a Path,
    /// Whether the demo stays up, so that its commands can be tried.
    pub(super) stays: bool,
}

/// Commands as they are typed in another terminal on this machine.
pub(super) struct Shell {
    digestd: String,
    temporal: String,
    address: String,
    ui_url: String,
}

impl Shell {
    pub(super) fn new(config: &Path, binary: &Binary, engine: &Engine) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("digestd"));
        let program = if is_on_path(&program) { Path::new("digestd") } else { program.as_path() };
        // Found on the PATH, it will be found there again.
        let temporal = match binary.place {
            Place::Path => Path::new("temporal"),
            _ => binary.path.as_path(),
        };
        let apart = apart(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()));
        Self {
            digestd: format!("{apart}{} --config {}", quoted(program), quoted(config)),
            temporal: format!("{apart}{}", quoted(temporal)),
            address: engine.address.clone().unwrap_or_default(),
            ui_url: engine.ui_url.clone(),
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status;
        let at_rest = status.selected.saturating_sub(status.missing_count);
        writeln!(
            f,
            "\n{}: {at_rest} of {} messages accounted for, {:.1} s after the start\n",
            status.run,
            status.selected,
            self.took.as_secs_f64()
        )?;
        let who = |part, words: &str| {
            self.cast.who(part).map(|who| format!("{who} {words}")).unwrap_or_default()
        };
        let met: Vec<String> =
            self.story.met().into_iter().map(|(what, count)| format!("{count} {what}")).collect();
        for (count, state, remark) in [
            (status.cleaned, "delivered and cleaned", String::new()),
            (status.suppressed, "suppressed", who(Part::OptsOut, "opted out after the freeze")),
            (status.dead, "dead", who(Part::Refused, "was refused for good")),
            (status.unknown, "unknown", who(Part::Waits, "waits for a human")),
        ] {
            if count > 0 {
                writeln!(f, "{}", format!("{count:>6}  {state:22}  {remark}").trim_end())?;
            }
        }
        if !met.is_empty() {
            writeln!(f, "\non the way: {}", met.join(", "))?;
        }
        match self.accepted {
            Some((accepted, 0)) => writeln!(
                f,
                "messages that the provider accepted: {accepted}, each under a key of its own, so \
                 nobody got two"
            )?,
            Some((_, twice)) => writeln!(f, "THE PROVIDER ACCEPTED {twice} KEYS TWICE")?,
            None => {}
        }
        if let Some(waiting) = self.waiting {
            self.decide(f, waiting)?;
        }
        write!(f, "\nweb UI: {}", self.shell.ui_url)?;
        if self.stays {
            write!(f, "\n\nThe demo stays up until Ctrl-C.")?;
        } else {
            write!(f, "\n\nThe demo ends here and is removed; without --exit it stays up.")?;
        }
        Ok(())
    }
}

impl Report<'_> {
    /// What to do about the one that waits.
    fn decide(&self, f: &mut fmt::Formatter<'_>, waiting: &OperationLine) -> fmt::Result {
        let Shell { digestd, temporal, address, .. } = &self.shell;
        let key = quoted(Path::new(&waiting.key)).into_owned();
        let attempt = waiting.operation.newest_handed_over;
        let log = quoted(self.provider_log).into_owned();
        let verdict = format!(
            r#"{{"verdict":"delivered","attempt":{attempt},"by":"me","reason":"it is in the log"}}"#
        );
        write!(
            f,
            "
{key} may or may not have been delivered: the provider was given it,
never answered, and finds no trace of it. Nothing is sent again on suspicion: somebody has to decide.

  look at it:
    {digestd} show {key}
    {temporal} workflow describe --address {address} --workflow-id {key}
  look into the provider's log:
    grep {customer} {log}
  then decide, with digestd or with the engine's own tool:
    {digestd} resolve {key} --delivered --attempt {attempt} --reason \"it is in the log\" --yes
    {temporal} workflow signal --address {address} --workflow-id {key} --name reconcile --input '{verdict}'
",
            customer = customer(&waiting.key),
        )
    }
}

/// What sets a command apart from an environment that leads somebody's own digestd or Temporal
/// elsewhere, where there is one.
fn apart(variables: impl Iterator<Item = String>) -> String {
    let mut leading: Vec<String> = variables
        .filter(|name| name.starts_with("DIGESTD_") || name.starts_with("TEMPORAL_"))
        .filter(|name| !name.starts_with("DIGESTD_LOG") && name != "TEMPORAL_CLI")
        .map(|name| format!("-u {}", quoted(Path::new(&name))))
        .collect();
    leading.sort();
    if leading.is_empty() { String::new() } else { format!("env {} ", leading.join(" ")) }
}

/// Whether `digestd` in a shell is this program.
fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let same = |found: PathBuf| found.canonicalize().is_ok_and(|found| found == program);
    std::env::split_paths(&path)
        .map(|folder| folder.join("digestd"))
        .find(|found| found.is_file())
        .is_some_and(same)
}

/// A word of a shell line.
fn quoted(path: &Path) -> Cow<'_, str> {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:%+=@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_lead_elsewhere_are_unset() {
        let of = |names: &[&str]| apart(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(of(&["HOME", "DIGESTD_LOG", "DIGESTD_LOG_FORMAT", "TEMPORAL_CLI"]), "");
        assert_eq!(
            of(&["TEMPORAL_NAMESPACE", "HOME", "DIGESTD_LEDGER_URL"]),
            "env -u DIGESTD_LEDGER_URL -u TEMPORAL_NAMESPACE "
        );
    }

    #[test]
    fn a_word_stays_one_word_in_a_shell() {
        assert_eq!(
            quoted(Path::new("/tmp/digestd-demo-1/digestd.toml")),
            "/tmp/digestd-demo-1/digestd.toml"
        );
        let odd = "/tmp/it's mine $HOME";
        let said = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("printf %s {}", quoted(Path::new(odd))))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), odd);
    }
}
