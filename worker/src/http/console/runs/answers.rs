//! What somebody who was woken wants to know first.

use super::list_path;
use digest_activities::ledger::RunStatus;
use maud::{Markup, html};

/// Whether anybody got two, who has none yet and why, and what waits for a person.
pub(super) fn answers(status: &RunStatus) -> Markup {
    html! {
        dl.answers {
            dt { "Did anybody get two?" }
            dd { (twice(status)) }
            dt { "Who has none yet, and why?" }
            dd { (without(status)) }
            dt { "What waits for you?" }
            dd { (waiting(status)) }
        }
    }
}

fn twice(status: &RunStatus) -> Markup {
    html! {
        @if status.contradicted == 0 {
            span.good { "No." }
            " No evidence speaks against what was decided, and nothing is handed over twice while the first "
            "may have been accepted."
        } @else {
            span.bad { "Perhaps: " (status.contradicted) }
            " have evidence against what was decided about them, such as a message that was called not "
            "delivered and was. They are named at the "
            a href={ "/runs/" (status.period) } { "run" } "."
        }
    }
}

fn without(status: &RunStatus) -> Markup {
    let waiting = status.pending + status.sending + status.retrying;
    let held = status.state == "held";
    let lines = [
        (
            waiting,
            if held {
                "wait until the run is resumed"
            } else {
                "are still being sent by themselves"
            },
        ),
        (status.unknown, "may or may not have it: the answer was lost"),
        (status.dead, "could not be sent: dead letters"),
        (status.expired, "were given up without an answer, and may have it"),
        (status.suppressed, "are not to get it: opted out, cancelled, or nothing to send"),
        (status.unkeyed, "rows could not be selected at all"),
    ];
    html! {
        @if lines.iter().all(|(count, _)| *count == 0) && status.selected > 0 {
            span.good { "Nobody: all " (status.selected) " are delivered." }
        } @else if lines.iter().all(|(count, _)| *count == 0) {
            "Nobody is selected."
        } @else {
            ul { @for (count, what) in lines { @if count > 0 { li { (count) " " (what) } } } }
        }
    }
}

fn waiting(status: &RunStatus) -> Markup {
    let period = Some(status.period);
    html! {
        @if status.needs_a_human() {
            ul {
                @if status.state == "held" { li {
                    "The run is held: " (status.held_because.as_deref().unwrap_or_default()) ". Once that is "
                    "solved, " a href={ "/runs/" (status.period) "/resume" } { "resume it" } "."
                } }
                @if status.state == "missed" { li {
                    "This week did not run: " (status.held_because.as_deref().unwrap_or_default()) ". "
                    code { "digestd schedule backfill --period " (status.period) } " sends it."
                } }
                @if status.unknown > 0 { li {
                    a href=(list_path("/unknown", period)) { (status.unknown) " unknown" }
                    ": some settle by themselves, the list says which need you."
                } }
                @if status.dead > 0 { li {
                    a href=(list_path("/dead-letters", period)) { (status.dead) " dead letters" }
                    ": once what killed them is fixed, replay them."
                } }
                @if status.contradicted > 0 { li { (status.contradicted) " with contradicting evidence: look at them." } }
                @if status.cleanup_failed > 0 { li {
                    (status.cleanup_failed) " were delivered and not cleaned: "
                    code { "digestd cleanup --period " (status.period) } "."
                } }
            }
        } @else {
            span.good { "Nothing." }
        }
    }
}
