//! Crash points: named places where a test lets the process end as by SIGKILL.
//!
//! Always compiled, so that what is tested is what runs. Armed only by the environment variable
//! `DIGESTD_CRASH_AT` (`point` or `point:n` for the n-th passage), and announced loudly at start.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that arms one crash point.
pub const VARIABLE: &str = "DIGESTD_CRASH_AT";

/// Every crash point, in the order in which an operation passes them.
pub const POINTS: [&str; 6] = [
    "before-intent",
    "intent-recorded",
    "accepted",
    "outcome-recorded",
    "cleanup-done",
    "page-enqueued",
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

/// Ends the process with SIGKILL if this point is armed and it is its turn.
pub fn point(name: &str) {
    let Ok(Some(armed)) = arm() else { return };
    if armed.point == name && armed.passed.fetch_add(1, Ordering::SeqCst) + 1 == armed.nth {
        eprint_last_words(name);
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
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
