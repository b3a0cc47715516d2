//! The runs, one run, and what is decided about it.

mod answers;

use super::fields::Fields;
use super::page::{confirmation, instant, operation_link, page, query, sentence, text_of};
use super::{Answer, Failed};
use crate::decide::run::RunDecision;
use crate::http::access::Caller;
use crate::http::decisions::{self, Came};
use crate::http::desk::Shared;
use crate::http::problem::Problem;
use crate::links;
use crate::report::ago;
use answers::answers;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use digest_activities::ledger::{LedgerError, RunLine, RunStatus};
use digest_workflows::operation::{FailureClass, Period};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

/// How many runs a page has: a quarter.
const RUNS: u32 = 13;
/// How many keys with contradicting evidence are named.
const CONTRADICTED_MAX: u32 = 50;

/// The latest run in answers, and all runs.
pub(super) async fn all(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let before = Fields::of_query(&uri).one("before").map(Period::parse).transpose();
    let before = before.map_err(|error| decisions::unusable(error.to_string()))?;
    let now = desk.ledger.now().await?;
    let listing = desk.ledger.runs(desk.campaign(), before, RUNS).await?;
    // One that is only held in advance says nothing yet.
    let begun = |run: &&RunLine| run.selected_at.is_some() || run.state == "missed";
    let newest = listing.runs.iter().find(begun).filter(|_| before.is_none());
    let status = match newest {
        Some(run) => Some(desk.ledger.status(desk.campaign(), run.period).await?),
        None => None,
    };
    let body = html! {
        h1 { "Runs" }
        @if let (Some(run), Some(status)) = (newest, &status) {
            section.panel aria-label={ "the latest run, " (run.period) } {
                h2 { (run_link(run.period)) ": " (state(run, now)) }
                p.soft { (meaning(&run.state)) }
                (answers(status))
                (gates(run))
            }
        }
        @if listing.runs.is_empty() {
            p {
                "There is no run yet. " code { "digestd run --period P" } " starts one, and "
                code { "digestd schedule resume" } " lets the schedule do it."
            }
        } @else {
            div.table { table.cards {
                thead { tr {
                    th { "period" } th { "state" } th.number { "selected" } th.number { "delivered" }
                    th.number { "to send" } th.number { "unknown" } th.number { "dead" }
                    th.number { "skipped" }
                } }
                tbody { @for run in &listing.runs { tr {
                    td data-name="period" { (run_link(run.period)) }
                    td data-name="state" { span { (state(run, now)) } }
                    (number("selected", run.selected, None))
                    (number("delivered", run.sent, None))
                    (number("to send", run.to_send, None))
                    (number("unknown", run.unknown, Some(("/unknown", run.period))))
                    (number("dead", run.dead, Some(("/dead-letters", run.period))))
                    (number("skipped", run.suppressed, None))
                } } }
            } }
        }
        @if let Some(next) = listing.next {
            p { a href={ "/?before=" (next) } { "Earlier runs" } }
        }
    };
    Ok(page(&desk, &caller, "Runs", &body, true))
}

/// One run.
pub(super) async fn one(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(period): Path<String>,
) -> Answer {
    let period = period_of(&period)?;
    let (ledger, campaign) = (&desk.ledger, desk.campaign());
    let now = ledger.now().await?;
    let missing =
        || LedgerError::NoSuchRun { campaign: campaign.to_owned(), period: period.to_string() };
    let run = ledger.progress(campaign, period).await?.ok_or_else(missing)?;
    let status = ledger.status(campaign, period).await?;
    let contradicted = if status.contradicted > 0 {
        ledger.contradicted(campaign, period, CONTRADICTED_MAX).await?
    } else {
        Vec::new()
    };
    let body = html! {
        h1 { "Run " (period) ": " (state(&run, now)) }
        p.soft { (meaning(&run.state)) }
        (held(&run, now))
        section.panel aria-label="answers" { (answers(&status)) }
        @if !contradicted.is_empty() {
            h2 { "With evidence against what was decided" }
            ul { @for key in &contradicted { li { (operation_link(key)) } } }
        }
        (decisions_about(&run))
        h2 { "Progress" }
        (gates(&run))
        (facts(&run, &status, now))
        h2 { "By state and class" }
        (classes(&status))
        (missing_keys(&status))
        p { a href=(links::of_run(&desk.config, period)) rel="noreferrer" { "The run in Temporal's web UI" } }
    };
    Ok(page(&desk, &caller, &format!("Run {period}"), &body, true))
}

/// What a decision would do, and the button that does it.
pub(super) async fn ask(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((period, decision)): Path<(String, String)>,
) -> Answer {
    let (period, decision) = (period_of(&period)?, decision_of(&decision)?);
    let answer = decisions::about_run(&desk, period, decision, None).await?;
    let action = format!("/runs/{period}/{}", decision.name());
    let name = name(decision);
    let body = html! {
        h1 { (name) " run " (period) "?" }
        p { (sentence(&answer.says)) }
        @if answer.result == Came::Would {
            (confirmation(&caller, &action, &html! {}, &format!("{name} the run")))
        }
        p { "The run " (run_link(period)) }
    };
    Ok(page(&desk, &caller, &format!("{name} run {period}"), &body, false))
}

/// Does it, and says what was done.
pub(super) async fn take(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((period, decision)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let fields = Fields::of_change(&desk, &caller, &headers, &body)?;
    let (period, decision) = (period_of(&period)?, decision_of(&decision)?);
    let decider = fields.decider(&caller)?;
    let answer = decisions::about_run(&desk, period, decision, Some(&decider)).await?;
    let name = name(decision);
    let body = html! {
        h1 { (name) " run " (period) }
        p role="status" { (sentence(&answer.says)) }
        p { "The run " (run_link(period)) }
    };
    Ok(page(&desk, &caller, &format!("{name} run {period}"), &body, false))
}

fn period_of(text: &str) -> Result<Period, Failed> {
    let unknown =
        |error| Problem::new(StatusCode::NOT_FOUND, format!("there is no such run: {error}"));
    Ok(Period::parse(text).map_err(unknown)?)
}

fn decision_of(name: &str) -> Result<RunDecision, Failed> {
    let detail = "nothing of that name is decided about a run; begin at /";
    let unknown = || Problem::new(StatusCode::NOT_FOUND, detail);
    Ok(RunDecision::from_name(name).ok_or_else(unknown)?)
}

const fn name(decision: RunDecision) -> &'static str {
    match decision {
        RunDecision::Hold => "Hold",
        RunDecision::Resume => "Resume",
        RunDecision::Cancel => "Cancel",
    }
}

fn run_link(period: Period) -> Markup {
    html! { a href={ "/runs/" (period) } { (period) } }
}

/// A cell with a number, which leads to the list of what is counted where there are any.
fn number(name: &str, count: u64, list: Option<(&str, Period)>) -> Markup {
    html! {
        td.number data-name=(name) {
            @if let Some((list, period)) = list.filter(|_| count > 0) {
                a href=(list_path(list, Some(period))) { (count) }
            } @else {
                (count)
            }
        }
    }
}

/// What a state of a run means, for whoever meets it for the first time.
fn meaning(state: &str) -> &'static str {
    match state {
        "planned" => "It has not begun.",
        "freezing" => "Whoever is to get a message is being selected. Nothing is sent yet.",
        "frozen" => "Everybody is selected, and the sending begins.",
        "dispatching" => "Messages are being sent.",
        "held" => "Nothing is sent until it is resumed.",
        "closed" => "The sending is over. Whoever has none is counted below.",
        "missed" => "It did not run, and nothing of it was sent.",
        _ => "",
    }
}

fn state(run: &RunLine, now: Timestamp) -> Markup {
    let class = match run.state.as_str() {
        "held" | "missed" => "bad",
        "closed" => "good",
        _ => "warn",
    };
    html! {
        span class=(class) { (run.state) }
        @if run.cancelled_at.is_some() { ", cancelled" }
        @if run.state == "held" && let Some(since) = run.held_since {
            span.soft { " for " (ago(now.duration_since(since))) }
        }
    }
}

/// Why it is held or was missed.
fn held(run: &RunLine, now: Timestamp) -> Markup {
    let because = run.held_because.as_deref().unwrap_or_default();
    html! {
        @if run.state == "missed" {
            p.bad { (sentence(because)) " Only you can make it up: "
                code { "digestd schedule backfill --period " (run.period) } }
        }
        @if run.state == "held" && let Some(since) = run.held_since {
            p.bad {
                "Held since " (instant(since, now)) " by " (run.held_by.as_deref().unwrap_or("digestd"))
                ": " (sentence(because)) " Nothing is given up meanwhile."
            }
        }
    }
}

/// What can be decided now.
fn decisions_about(run: &RunLine) -> Markup {
    let link = |decision: RunDecision| {
        html! {
            a.button href={ "/runs/" (run.period) "/" (decision.name()) } { (name(decision)) " …" }
        }
    };
    html! {
        div.actions {
            @if run.held_since.is_some() { (link(RunDecision::Resume)) } @else { (link(RunDecision::Hold)) }
            @if run.state != "closed" && run.state != "missed" { (link(RunDecision::Cancel)) }
        }
        p.soft {
            "Each says first what it will do, and asks why. Cancelling can't be taken back."
        }
    }
}

/// How far each gate is.
fn gates(run: &RunLine) -> Markup {
    let settled = run.sent + run.suppressed + run.dead + run.expired + run.unknown;
    let gate = |name: &str, done: u64, all: u64, what: &str| {
        html! {
            div {
                strong { (name) } ": " (done) " of " (all) " " (what)
                progress aria-label=(name) max=(all.max(1)) value=(done.min(all.max(1))) {}
            }
        }
    };
    html! {
        div.gates {
            (gate("Eligibility", run.selected + run.unkeyed,
                run.expected.unwrap_or(0).max(run.selected + run.unkeyed), "customers read"))
            (gate("Delivery", settled, run.selected, "tried to the end"))
            (gate("Cleanup", run.cleaned, run.sent, "delivered ones cleaned"))
        }
        @if let Some(pace) = run.answered_per_minute {
            p {
                (pace) " answers in the last minute"
                @if let Some(left) = run.seconds_left {
                    "; at this pace " (ago(span(left))) " for the " (run.to_send) " still to send"
                } @else {
                    "; " (run.to_send) " still to send"
                }
                "."
            }
        }
    }
}

fn facts(run: &RunLine, status: &RunStatus, now: Timestamp) -> Markup {
    html! {
        ul {
            @if let Some(at) = run.tick { li { "Scheduled for " (instant(at, now)) } }
            @if let Some(at) = run.selected_at { li { "Selected " (instant(at, now)) } }
            @if let Some(at) = run.useful_until { li { "Nothing begins after " (instant(at, now)) } }
            @if let Some(at) = run.cancelled_at { li { "Cancelled " (instant(at, now)) } }
            @if let Some(age) = status.oldest_pending_seconds {
                li { "The oldest that still waits to be sent was selected "
                    (ago(SignedDuration::from_secs(age))) " ago" }
            }
            @if status.undelivered > 0 {
                li { (status.undelivered) " were accepted and then given up by the provider" }
            }
            @if status.newly_suppressed > 0 {
                li { (status.newly_suppressed) " customers bounced for good, complained or opted out, and get "
                    "nothing any more" }
            }
        }
    }
}

fn classes(status: &RunStatus) -> Markup {
    html! {
        div.table { table {
            thead { tr { th { "state" } th { "class" } th.number { "count" } } }
            tbody {
                @for line in &status.classes { tr {
                    td { (line.state.name()) }
                    td { (line.class.map_or("", FailureClass::name)) }
                    td.number { (line.count) }
                } }
                tr { td { "selected" } td { "in all" } td.number { (status.selected) } }
            }
        } }
        @if !status.faults.is_empty() {
            h2 { "Rows that could not be selected" }
            ul { @for fault in &status.faults { li {
                (fault.customer.as_deref().unwrap_or("no id to show")) ": " (fault.reason)
            } } }
        }
    }
}

fn missing_keys(status: &RunStatus) -> Markup {
    html! {
        @if status.missing_count > 0 {
            details {
                summary { (status.missing_count) " are not at rest yet" }
                ul { @for key in &status.missing { li { (operation_link(key)) } } }
                @if status.missing_count > status.missing.len() as u64 {
                    p { "and " (status.missing_count - status.missing.len() as u64) " more" }
                }
            }
        }
    }
}

fn span(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// The path of a list, for one period.
pub(super) fn list_path(list: &str, period: Option<Period>) -> String {
    let query = query(&[("period", &text_of(period))]);
    if query.is_empty() { list.to_owned() } else { format!("{list}?{query}") }
}
