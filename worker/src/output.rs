//! What a command prints: results on standard output, errors on standard error.

use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// Prints a result and a line end. A reader that has seen enough (`digestd … | head`) is no error.
///
/// # Errors
/// What the system says when it cannot be written, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Says something beside the result, on standard error.
///
/// # Errors
/// What the system says when it cannot be written.
pub fn say(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{text}")
}

/// Prints a result as JSON, indented, with its keys in the order of the type.
///
/// # Errors
/// What the system says when it cannot be written.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Sends the log to standard error: `DIGESTD_LOG` filters (`info` by default, with the engine's own
/// messages from `warn` on), and `DIGESTD_LOG_FORMAT=json` writes a JSON object a line.
pub fn log_to_stderr() {
    log_to(io::stderr, colours(&io::stderr()));
}

/// Sends the log to a file, by the same variables.
///
/// # Errors
/// What the system says when it cannot be created.
pub fn log_to_file(file: &Path) -> io::Result<()> {
    log_to(Mutex::new(File::create(file)?), false);
    Ok(())
}

/// Has a panic logged instead of printed. Of its message only what the code itself says is told: a
/// formatted one may quote an address or content.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload().downcast_ref::<&'static str>();
        let words =
            words.unwrap_or(&"its message is not shown, because it may quote what is private");
        tracing::error!(place, "a defect of digestd: it panicked: {words}");
    }));
}

fn log_to<W>(writer: W, colours: bool)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = tracing_subscriber::EnvFilter::try_from_env("DIGESTD_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new("warn,digestd=info,digest_activities=info")
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A second subscriber is refused, and the first stays.
    if std::env::var("DIGESTD_LOG_FORMAT").is_ok_and(|format| format == "json") {
        let _ = log.json().try_init();
    } else {
        let _ = log.with_ansi(colours).with_target(false).try_init();
    }
    log_panics();
}

/// Prints why a command failed, with its causes, on standard error.
pub fn print_error(error: &anyhow::Error) {
    let stderr = io::stderr();
    let label = if colours(&stderr) { "\u{1b}[1;31merror:\u{1b}[0m" } else { "error:" };
    // Nothing is left to tell where even this cannot be written.
    let _ = writeln!(stderr.lock(), "{label} {}", paragraph(error));
}

/// The error and its causes in one paragraph. A cause that the text before already tells is left
/// out.
#[must_use]
pub fn paragraph(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Whether `stream` shows colours: a terminal that can, and nobody said no (no-color.org).
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io::Read;
    use std::panic::catch_unwind;

    #[test]
    fn a_panic_is_logged_by_its_place_and_quotes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        log_to_file(file.path()).unwrap();
        let address = String::from("ann@shop.example");
        assert!(catch_unwind(|| panic!("no mail for {address}")).is_err());
        assert!(catch_unwind(|| panic!("out of order")).is_err());
        drop(std::panic::take_hook());
        let mut log = String::new();
        File::open(file.path()).unwrap().read_to_string(&mut log).unwrap();
        assert!(!log.contains("ann@"), "{log}");
        assert!(log.contains("out of order") && log.matches("output.rs:").count() == 2, "{log}");
    }

    #[test]
    fn an_error_is_one_paragraph_with_each_cause_once() {
        let error = Err::<(), _>(anyhow::anyhow!("connection refused"))
            .context("the ledger at db:5432 was asked: connection refused")
            .context("no run was started")
            .unwrap_err();
        assert_eq!(
            paragraph(&error),
            "no run was started: the ledger at db:5432 was asked: connection refused"
        );
    }
}
