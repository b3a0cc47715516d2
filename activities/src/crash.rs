//! Crash points: named places where a test lets the process end as by SIGKILL.
//!
//! Always compiled, so that what is tested is what runs. Armed only by the environment variable
//! `DIGESTD_CRASH_AT` (`point` or `point:n` for the n-th passage), and announced loudly at start by
//! every command. Unarmed, a point is one look at a value that never changes.

mod connection;

pub(crate) use connection::Interrupted;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that arms one crash point.
pub const VARIABLE: &str = "DIGESTD_CRASH_AT";

/// Every crash point, in the order in which a deployment, a run and an operation pass them.
pub const POINTS: [&str; 23] = [
    // `digestd setup`: before and after the migrations, each of which is a transaction of its own.
    "migrating",
    // The run: opened, frozen page by page, dispatched page by page, and continued as new.
    "run-unrecorded",
    "run-recorded",
    "page-frozen",
    "selection-frozen",
    "task-open",
    "page-enqueued",
    "continuing",
    "continued",
    // One operation: intent, hand-over, outcome, cleanup.
    "before-intent",
    "intent-uncommitted",
    "intent-recorded",
    "half-written",
    "answer-waiting",
    "accepted",
    "outcome-uncommitted",
    "outcome-recorded",
    "unknown-recorded",
    "looked-up",
    "cleanup-done",
    // A person's decision, and a worker that is told to stop.
    "decision-uncommitted",
    "decision-recorded",
    "draining",
];

struct Armed {
    point: String,
    nth: u32,
    passed: AtomicU32,
}

/// The armed point, if any; for the announcement at start.
///
/// # Errors
/// When the variable names no crash point.
pub fn armed() -> Result<Option<&'static str>, String> {
    match arm() {
        Ok(armed) => Ok(armed.as_ref().map(|armed| armed.point.as_str())),
        Err(error) => Err(error.clone()),
    }
}

/// Whether this point is the armed one, whichever its passage.
#[must_use]
pub fn is_armed(name: &str) -> bool {
    matches!(arm(), Ok(Some(armed)) if armed.point == name)
}

/// Ends the process with SIGKILL if this point is armed and it is its turn.
pub fn point(name: &str) {
    let Ok(Some(armed)) = arm() else { return };
    if armed.point == name && armed.passed.fetch_add(1, Ordering::SeqCst) + 1 == armed.nth {
        eprint_last_words(name);
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// As [`point`], but if it is armed, first waits for what the point needs, such as an answer.
pub(crate) async fn point_after(name: &str, needed: impl Future) {
    if is_armed(name) {
        needed.await;
        point(name);
    }
}

#[expect(clippy::print_stderr, reason = "the process ends here, and a test must see that it did")]
fn eprint_last_words(name: &str) {
    eprintln!("crash point {name}: the process ends by SIGKILL");
}

fn arm() -> &'static Result<Option<Armed>, String> {
    static ARMED: OnceLock<Result<Option<Armed>, String>> = OnceLock::new();
    ARMED.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| parse(&text)).transpose())
}

fn parse(text: &str) -> Result<Armed, String> {
    let (point, nth) = text.split_once(':').unwrap_or((text, "1"));
    let nth = nth.parse().ok().filter(|nth| *nth > 0);
    match nth {
        Some(nth) if POINTS.contains(&point) => {
            Ok(Armed { point: point.to_owned(), nth, passed: AtomicU32::new(0) })
        }
        _ => Err(format!(
            "{VARIABLE}={text:?} names no crash point; write one of {}, with :n for the n-th passage",
            POINTS.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_points_can_be_armed() {
        assert_eq!(parse("accepted").unwrap().nth, 1);
        assert_eq!(parse("accepted:3").unwrap().nth, 3);
        for text in ["", "nowhere", "accepted:0", "accepted:x"] {
            assert!(parse(text).is_err(), "{text:?} was armed");
        }
    }
}
