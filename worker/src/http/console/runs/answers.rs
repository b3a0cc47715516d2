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
    let still = if held {
        "waiting until the run is resumed"
    } else {
        "still being sent, without your help"
    };
    let lines = [
        (waiting, still),
        (status.unknown, "in doubt: may or may not have it, because the answer was lost"),
        (status.dead, "that could not be sent: dead letters"),
        (status.expired, "given up without an answer, and may have it"),
        (status.suppressed, "not meant to get it: opted out, cancelled, or nothing to send"),
        (status.unkeyed, "of the customers query that could not be selected at all"),
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
                    a href=(list_path("/unknown", period)) { "Unknown: " (status.unknown) }
                    ". Some settle by themselves, the list says which need you."
                } }
                @if status.dead > 0 { li {
                    a href=(list_path("/dead-letters", period)) { "Dead letters: " (status.dead) }
                    ". Once what killed them is fixed, replay them."
                } }
                @if status.contradicted > 0 { li { "With contradicting evidence: " (status.contradicted) ". Look at them." } }
                @if status.cleanup_failed > 0 { li {
                    "Delivered and not cleaned: " (status.cleanup_failed) ". "
                    code { "digestd cleanup --period " (status.period) } " tries again."
                } }
            }
        } @else {
            span.good { "Nothing." }
        }
    }
}
