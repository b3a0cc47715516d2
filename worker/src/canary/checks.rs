//! What canaries have shown, check by check, and whether the schedule may be enabled.

use super::Sent;
use crate::check::Line;
use crate::cli::Exit;
use digest_activities::ledger::Shown;
use digest_workflows::operation::{FailureClass, Period, Rehearsal, State};
use serde::Serialize;

/// The checks' names, in their order.
const DELIVERY: &str = "delivery";
const NO_TRACE: &str = "no trace";
const RETRY: &str = "retry";
const DEAD_LETTER: &str = "dead letter";

/// What canaries have shown; the JSON of `digestd canary`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The campaign of the canaries.
    pub campaign: String,
    /// The period that they were rendered for.
    pub period: Period,
    /// Their keys.
    pub keys: Vec<String>,
    /// Each check by name.
    pub checks: Vec<Line>,
    /// Whether the schedule may be enabled. `None` where no failure was rehearsed, which says nothing
    /// about it.
    pub schedule_may_be_enabled: Option<bool>,
    #[serde(skip)]
    exit: Exit,
}

impl Report {
    /// The exit code: 4 where a delivery is unknown, else 1 where a check is not as it should be.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// What a person is told at the end.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match (self.schedule_may_be_enabled, self.exit) {
            (Some(true), _) => {
                "the schedule may be enabled: look at the two messages that have arrived, then \
                 `digestd schedule resume`"
            }
            (Some(false), _) => {
                "the schedule must not be enabled yet: correct what is not ok, then run this again"
            }
            (None, Exit::Done) => {
                "delivered; --force-failures also rehearses a retry and a dead letter, and says whether \
                 the schedule may be enabled"
            }
            (None, _) => "not as it should be: correct what is not ok, then run this again",
        }
    }
}

/// What was shown, after the checks made `before`.
#[must_use]
pub fn report(campaign: String, before: Vec<Line>, sent: &Sent, task_queue: &str) -> Report {
    let mut checks = before;
    let mut unknown = false;
    for (rehearsal, shown) in &sent.canaries {
        unknown |= shown.state == State::Unknown;
        let stuck = stuck(shown, task_queue);
        match rehearsal {
            Rehearsal::None => {
                checks.push(delivery(DELIVERY, shown, stuck));
                checks.extend(no_trace(shown));
            }
            Rehearsal::Transient => checks.push(retry(shown, stuck)),
            Rehearsal::Permanent => checks.push(dead_letter(shown, stuck)),
        }
    }
    let ok = checks.iter().all(|line| line.ok);
    let exit = match (ok, unknown) {
        (true, _) => Exit::Done,
        (false, true) => Exit::NeedsHuman,
        (false, false) => Exit::Failed,
    };
    let rehearsed = sent.canaries.len() > 1;
    Report {
        campaign,
        period: sent.period,
        keys: sent.canaries.iter().map(|(_, shown)| shown.key.clone()).collect(),
        checks,
        schedule_may_be_enabled: rehearsed.then_some(ok),
        exit,
    }
}

/// Why a canary has come to no end, with what to do; `None` where it has.
fn stuck(shown: &Shown, task_queue: &str) -> Option<String> {
    if shown.state == State::Unknown {
        return Some(format!(
            "the provider may or may not have accepted it; look whether it has arrived, and for the \
             reason with `digestd show {}`",
            shown.key
        ));
    }
    let given_up = shown.timeline.iter().any(|line| line.event == "cancelled");
    if shown.state != State::Suppressed || !given_up {
        return None;
    }
    if let Some(because) = &shown.held_because {
        return Some(format!("held, and given up: {because}; correct it"));
    }
    if let Some(last) = shown.attempts.last() {
        let outcome = last.outcome.as_deref().unwrap_or("no outcome");
        return Some(format!("not at rest in time, and given up; the last attempt: {outcome}"));
    }
    Some(format!(
        "no worker has taken it in time, so it was given up; start `digestd worker` with this \
         configuration (task queue {task_queue:?}), or see in its log why it does not answer"
    ))
}

fn is_sent(shown: &Shown) -> bool {
    matches!(shown.state, State::Sent | State::Cleaned)
}

/// A canary that was to be sent.
fn delivery(name: &'static str, shown: &Shown, stuck: Option<String>) -> Line {
    if let Some(stuck) = stuck {
        return Line::problem(name, Exit::Failed, stuck);
    }
    if !is_sent(shown) {
        return Line::problem(name, Exit::Failed, ended(shown));
    }
    let provider = shown.provider.as_deref().unwrap_or("the provider");
    let id = shown.message_id.as_deref().map_or_else(String::new, |id| format!(" as {id}"));
    let tries = match shown.attempts.len() {
        1 => "at the first attempt".to_owned(),
        tries => format!("at attempt {tries}"),
    };
    Line::ok(name, format!("accepted by {provider}{id}, {tries}: {}", shown.key))
}

/// How a canary ended that was to end otherwise.
fn ended(shown: &Shown) -> String {
    let class = shown.class.map_or("no class", FailureClass::name);
    let outcome = shown.attempts.last().and_then(|last| last.outcome.as_deref());
    let outcome = outcome.map_or_else(String::new, |outcome| format!(": {outcome}"));
    format!("it ended {} ({class}){outcome}; `digestd show {}` tells more", shown.state, shown.key)
}

/// Its content is erased, as that of every message is. Nothing is said where it was not sent.
fn no_trace(shown: &Shown) -> Option<Line> {
    if !is_sent(shown) {
        return None;
    }
    Some(if shown.state == State::Cleaned {
        Line::ok(NO_TRACE, "address and content are erased; nothing was removed from the source")
    } else {
        let detail = format!("address and content are still stored: `digestd show {}`", shown.key);
        Line::problem(NO_TRACE, Exit::Failed, detail)
    })
}

/// The canary whose first attempt was refused for now on purpose.
fn retry(shown: &Shown, stuck: Option<String>) -> Line {
    let line = delivery(RETRY, shown, stuck);
    let [first, .., last] = shown.attempts.as_slice() else {
        return if line.ok {
            Line::problem(RETRY, Exit::Failed, "it was sent without the refusal on purpose")
        } else {
            line
        };
    };
    if !line.ok {
        return line;
    }
    let refused = first.outcome.as_deref().unwrap_or_default();
    let on_purpose = refused.starts_with("not_sent: transport") && first.handed_over_at.is_none();
    if !on_purpose || last.outcome.as_deref() != Some("accepted") {
        return Line::problem(RETRY, Exit::Failed, ended(shown));
    }
    Line::ok(
        RETRY,
        format!(
            "refused for now on purpose, then accepted at attempt {}: {}",
            last.number, shown.key
        ),
    )
}

/// The canary that was refused for good on purpose.
fn dead_letter(shown: &Shown, stuck: Option<String>) -> Line {
    if let Some(stuck) = stuck {
        return Line::problem(DEAD_LETTER, Exit::Failed, stuck);
    }
    let once = shown.attempts.len() == 1;
    let handed_over = shown.attempts.iter().any(|attempt| attempt.handed_over_at.is_some());
    let rejected = shown.state == State::Dead && shown.class == Some(FailureClass::Rejected);
    if !(rejected && once) || handed_over {
        return Line::problem(DEAD_LETTER, Exit::Failed, ended(shown));
    }
    Line::ok(
        DEAD_LETTER,
        format!("refused for good on purpose, and not tried again: {}", shown.key),
    )
}
