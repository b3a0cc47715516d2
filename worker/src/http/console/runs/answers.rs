//! What somebody who was woken wants to know first.

use super::list_path;
use crate::decide::run::RunDecision;
use digest_activities::ledger::{ClassCount, RunStatus};
use digest_workflows::operation::{FailureClass, State};
use maud::{Markup, html};

/// Whether anybody got two, who has none yet and why, what waits for a person, and what is safe to do.
pub(super) fn answers(status: &RunStatus) -> Markup {
    html! {
        dl.answers {
            dt { "Did anybody get two?" }
            dd { (twice(status)) }
            dt { "Who has none yet, and why?" }
            dd { (without(status)) }
            dt { "What waits for you?" }
            dd { (waiting(status)) }
            dt { "What is safe to do?" }
            dd { (safe(status)) }
        }
    }
}

fn twice(status: &RunStatus) -> Markup {
    html! {
        @if status.contradicted == 0 {
            strong.good { "No." }
            " Nothing is handed over again while an earlier attempt may have been accepted, and nothing that "
            "was heard since speaks against what was decided. "
            code { "digestd audit --period " (status.period) } " compares it with the provider, key by key."
        } @else {
            strong.bad { "Perhaps: " (status.contradicted) "." }
            " There is evidence against what was decided about so many, such as a message that was called "
            "not delivered and was. They are named at the "
            a href={ "/runs/" (status.period) } { "run" } "."
        }
    }
}

fn without(status: &RunStatus) -> Markup {
    let still = if status.state == "held" {
        "to be sent once the run is resumed"
    } else {
        "being sent, without your help"
    };
    let period = Some(status.period);
    let link = |list: &str, text: &str| html! { a href=(list_path(list, period)) { (text) } };
    let lines = [
        (status.pending + status.sending, html! { (still) }),
        (
            status.retrying,
            html! { "refused for now, and tried again by the rules" (why(status, State::Retrying)) },
        ),
        (
            status.unknown,
            html! { (link("/unknown", "in doubt")) ": may or may not have it, because the answer was lost" },
        ),
        (
            status.dead,
            html! { "could not be sent: " (link("/dead-letters", "dead letters")) (why(status, State::Dead)) },
        ),
        (status.expired, html! { "given up without an answer, and may have it" }),
        (
            status.suppressed,
            html! { "not meant to get it: opted out, cancelled, or nothing to send" },
        ),
        (status.unkeyed, html! { "of the customers query could not be selected at all" }),
    ];
    html! {
        @if lines.iter().any(|(count, _)| *count > 0) {
            ul { @for (count, what) in lines { @if count > 0 { li { (count) " " (what) } } } }
        } @else if status.selected > 0 {
            strong.good { "Nobody: all " (status.selected) " are delivered." }
        } @else {
            "Nobody is selected."
        }
    }
}

/// The classes of the failures of those in `state`, with how many have each.
fn why(status: &RunStatus, state: State) -> Markup {
    let of = |line: &&ClassCount| line.state == state && line.class.is_some();
    let classes: Vec<String> = (status.classes.iter().filter(of))
        .map(|line| format!("{} {}", line.count, line.class.map_or("", FailureClass::name)))
        .collect();
    html! { @if !classes.is_empty() { " (" (classes.join(", ")) ")" } }
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
            strong.good { "Nothing." }
        }
    }
}

fn safe(status: &RunStatus) -> Markup {
    let decide = |decision: RunDecision, text: &str| {
        html! { a href={ "/runs/" (status.period) "/" (decision.name()) } { (text) } }
    };
    let open = status.pending + status.sending + status.retrying + status.unknown;
    html! {
        ul {
            li { strong.good { "Waiting." } " Nothing is ever sent again on suspicion." }
            @if status.state == "held" { li {
                strong.good { "Leaving it held." } " No attempt begins. " (decide(RunDecision::Resume, "Resuming"))
                " lets the rules go on, and they send nobody a second one."
            } }
            @if status.state != "held" && open > 0 { li {
                strong.good { (decide(RunDecision::Hold, "Holding the run")) "." }
                " No attempt begins until you resume it, and nothing is given up. Do this first if what is "
                "sent is wrong."
            } }
            @if status.dead > 0 { li {
                strong.good { "Replaying dead letters." } " Only what is certainly not sent goes again."
            } }
            @if status.unknown > 0 { li {
                strong.bad { "Not safe: calling a doubt \u{201c}not delivered\u{201d} on a guess." }
                " It is then sent again, and whoever had it has two."
            } }
        }
    }
}
