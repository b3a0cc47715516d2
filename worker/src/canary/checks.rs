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
    /// The period that they were rendered for; `None` where none was sent.
    pub period: Option<Period>,
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
    /// The exit code: 4 where a delivery is unknown, else 1 where a check is not as it should be, or 2
    /// where the configuration is wrong.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// What a person is told at the end.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.schedule_may_be_enabled, self.exit) {
            (Some(true), _) => {
                "the schedule may be enabled: look at the two messages that have arrived, then \
                 `digestd schedule resume`"
            }
            (Some(false), _) if self.keys.is_empty() => {
                "nothing was sent, and the schedule must not be enabled yet: correct the problems, \
                 then run this again"
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

/// What is told where checks made `before` have kept canaries from being sent; `exit` is theirs.
#[must_use]
pub fn not_sent(campaign: String, before: Vec<Line>, exit: Exit) -> Report {
    Report {
        campaign,
        period: None,
        keys: Vec::new(),
        checks: before,
        schedule_may_be_enabled: Some(false),
        exit,
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
        period: Some(sent.period),
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
    if matches!(shown.state, State::Selected | State::Sending | State::Retrying) {
        return Some(format!(
            "still under way ({}), and nothing is known to be wrong; wait longer with --timeout, and \
             see what becomes of it with `digestd show {}`",
            shown.state, shown.key
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

#[cfg(test)]
mod tests {
    use super::*;
    use digest_activities::ledger::{AttemptLine, TransitionLine};
    use digest_workflows::operation::Operation;
    use jiff::Timestamp;

    const ACCEPTED: &str = "accepted";
    const REFUSED: &str = "not_sent: transport (forced by a canary)";
    const REJECTED: &str = "not_sent: rejected (forced by a canary)";

    /// An operation in `state` with attempts of these outcomes; those accepted were handed over.
    fn shown(state: State, class: Option<FailureClass>, outcomes: &[&str]) -> Shown {
        let at = Timestamp::UNIX_EPOCH;
        let attempts = outcomes.iter().zip(1..).map(|(outcome, number)| AttemptLine {
            generation: 1,
            ordinal: number,
            number,
            handed_over_at: (*outcome == ACCEPTED).then_some(at),
            lease_ends: None,
            outcome: Some((*outcome).to_owned()),
            batch: None,
        });
        Shown {
            key: "digest-canary:2026-W42:1~20261014T081502117".to_owned(),
            state,
            class,
            provider: Some("smtp".to_owned()),
            message_id: None,
            undelivered: false,
            suppressed: None,
            attempts: attempts.collect(),
            timeline: Vec::new(),
            ui_url: None,
            frozen_at: at,
            enqueued_at: None,
            content_hash: None,
            held_because: None,
            operation: Operation::selected(at),
        }
    }

    fn given_up(outcomes: &[&str], held_because: Option<&str>) -> Shown {
        let line = TransitionLine {
            at: Timestamp::UNIX_EPOCH,
            event: "cancelled".to_owned(),
            from: None,
            to: None,
            by: super::super::BY.to_owned(),
            reason: None,
            note: None,
        };
        let shown = shown(State::Suppressed, Some(FailureClass::Suppressed), outcomes);
        let held_because = held_because.map(str::to_owned);
        Shown { timeline: vec![line], held_because, ..shown }
    }

    fn of(canaries: Vec<(Rehearsal, Shown)>) -> Report {
        let sent = Sent { period: Period::parse("2026-W42").unwrap(), canaries };
        report("digest-canary".to_owned(), Vec::new(), &sent, "digest")
    }

    fn rehearsed() -> Vec<(Rehearsal, Shown)> {
        let rejected = Some(FailureClass::Rejected);
        vec![
            (Rehearsal::None, shown(State::Cleaned, None, &[ACCEPTED])),
            (Rehearsal::Transient, shown(State::Cleaned, None, &[REFUSED, ACCEPTED])),
            (Rehearsal::Permanent, shown(State::Dead, rejected, &[REJECTED])),
        ]
    }

    #[test]
    fn a_rehearsal_that_went_as_it_should_enables_the_schedule() {
        let report = of(rehearsed());
        assert!(report.checks.iter().all(|line| line.ok), "{report:?}");
        assert_eq!((report.schedule_may_be_enabled, report.exit()), (Some(true), Exit::Done));
        let alone = of(rehearsed().into_iter().take(1).collect());
        assert_eq!((alone.schedule_may_be_enabled, alone.exit()), (None, Exit::Done));
        assert!(alone.verdict().contains("--force-failures"));
    }

    #[test]
    fn whatever_goes_otherwise_forbids_it_with_the_reason() {
        let rejected = Some(FailureClass::Rejected);
        for (place, wrong, name, words) in [
            (0, given_up(&[], None), DELIVERY, "no worker has taken it"),
            (0, given_up(&[REFUSED], Some("configuration: no")), DELIVERY, "held, and given up"),
            (0, given_up(&[REFUSED], None), DELIVERY, "the last attempt: not_sent: transport"),
            (0, shown(State::Dead, rejected, &[REJECTED]), DELIVERY, "it ended dead (rejected)"),
            (0, shown(State::Sent, None, &[ACCEPTED]), NO_TRACE, "still stored"),
            (0, shown(State::Sending, None, &[]), DELIVERY, "still under way"),
            (1, shown(State::Cleaned, None, &[ACCEPTED]), RETRY, "without the refusal"),
            (1, shown(State::Dead, None, &[REFUSED]), RETRY, "it ended dead"),
            (2, shown(State::Dead, rejected, &[REJECTED, REJECTED]), DEAD_LETTER, "it ended dead"),
            (2, shown(State::Cleaned, None, &[ACCEPTED]), DEAD_LETTER, "it ended cleaned"),
        ] {
            let mut canaries = rehearsed();
            canaries[place].1 = wrong;
            let report = of(canaries);
            let bad: Vec<_> = report.checks.iter().filter(|line| !line.ok).collect();
            assert!(bad.len() == 1 && bad[0].name == name, "{words}: {bad:?}");
            assert!(bad[0].detail.contains(words), "{words}: {}", bad[0].detail);
            assert_eq!(
                (report.schedule_may_be_enabled, report.exit()),
                (Some(false), Exit::Failed)
            );
        }
    }

    #[test]
    fn what_keeps_canaries_from_being_sent_is_a_report_too() {
        let problem = Line::problem("ledger", Exit::Failed, "fsync = off");
        let report = not_sent("digest-canary".to_owned(), vec![problem], Exit::Failed);
        assert_eq!((report.schedule_may_be_enabled, report.exit()), (Some(false), Exit::Failed));
        assert!(report.verdict().starts_with("nothing was sent"));
    }

    #[test]
    fn an_unknown_delivery_is_a_matter_for_a_human() {
        let mut canaries = rehearsed();
        canaries[0].1 = shown(State::Unknown, Some(FailureClass::Ambiguous), &[]);
        let report = of(canaries);
        assert_eq!(
            (report.schedule_may_be_enabled, report.exit()),
            (Some(false), Exit::NeedsHuman)
        );
    }
}
