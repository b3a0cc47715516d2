//! One operation, from its selection to its end; and finding it.

use super::fields::Fields;
use super::page::{instant, operation_link, operation_path, page};
use super::{Answer, Failed, unknown};
use crate::cli;
use crate::http::access::Caller;
use crate::http::decisions::key_of;
use crate::http::desk::Shared;
use crate::links;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Redirect, Response};
use digest_activities::ledger::{AttemptLine, Shown};
use digest_workflows::operation::{self, FailureClass};
use jiff::Timestamp;
use maud::{Markup, html};

/// One operation.
pub(super) async fn one(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(key): Path<String>,
) -> Answer {
    let key = key_of("the path", &key)?;
    let is_own = key.campaign() == desk.campaign();
    let may_be_resolved = is_own || key.is_canary_of(desk.campaign());
    let shown = desk.ledger.show(&key).await?;
    let now = desk.ledger.now().await?;
    let body = html! {
        h1.key { (shown.key) }
        (standing(&shown, now))
        @if shown.state == operation::State::Unknown && may_be_resolved {
            p { "Once you know what became of it, say so. Each button says first what it will do." }
            (unknown::buttons(&shown.key, shown.operation.newest_handed_over))
        }
        @if shown.state == operation::State::Dead && is_own {
            form.actions action="/dead-letters/replay" {
                input type="hidden" name="key" value=(shown.key);
                button name="how" value="frozen" { "Replay as frozen …" }
                button name="how" value="refreeze" { "Replay rendered anew …" }
            }
        }
        h2 { "Attempts" }
        (attempts(&shown, now))
        h2 { "Timeline" }
        (timeline(&shown, now))
        p {
            @if is_own { a href={ "/runs/" (key.period()) } { "The run " (key.period()) } " · " }
            a href=(links::of_operation(&desk.config, &key)) rel="noreferrer" {
                "The operation in Temporal's web UI"
            }
        }
    };
    Ok(page(&desk, &caller, &shown.key, &body, true))
}

fn standing(shown: &Shown, now: Timestamp) -> Markup {
    let waits = shown.operation.waits_for(now);
    html! {
        ul {
            li {
                strong { (shown.state.name()) }
                @if let Some(class) = shown.class { " (" (class.name()) ")" }
                " since " (instant(shown.operation.since, now))
            }
            @if let Some(because) = shown.held_because.as_ref().filter(|_| !shown.state.is_terminal()) {
                li.bad { "Its run is held: " (because) "; nothing is sent until it is resumed" }
            }
            @if !waits.is_empty() { li { "Waits for " (waits) } }
            @if shown.operation.contradicted {
                li.bad { "There is evidence against what was decided: the timeline has it" }
            }
            @if shown.undelivered { li.warn { "Accepted, and then given up by the provider" } }
            @if let Some(reason) = shown.suppressed {
                li.warn { "The customer gets nothing any more (" (reason.name()) "): "
                    code { "digestd suppressions" } }
            }
            @if let Some(provider) = &shown.provider { li { "Provider: " (provider) } }
            @if let Some(id) = &shown.message_id { li { "The provider's id: " code { (id) } } }
            @if let Some(hash) = &shown.content_hash { li.soft { "Hash of the content: " code { (hash) } } }
        }
    }
}

fn attempts(shown: &Shown, now: Timestamp) -> Markup {
    let outcome = |attempt: &AttemptLine| match &attempt.outcome {
        Some(outcome) => outcome.clone(),
        None if shown.state == operation::State::Unknown => "in doubt".to_owned(),
        None => "none yet".to_owned(),
    };
    let batched = shown.attempts.iter().any(|attempt| attempt.batch.is_some());
    html! {
        @if shown.attempts.is_empty() { p { "None." } } @else {
            div.table { table.cards {
                thead { tr {
                    th { "attempt" } th { "generation" } th { "handed over" } th { "lease ends" } th { "outcome" }
                    @if batched { th { "batch" } }
                } }
                tbody { @for attempt in &shown.attempts { tr {
                    td data-name="attempt" { (attempt.number) }
                    td data-name="generation" { (attempt.generation) "." (attempt.ordinal) }
                    td data-name="handed over" { span {
                        @match attempt.handed_over_at { Some(at) => (instant(at, now)), None => "no" }
                    } }
                    td data-name="lease ends" { span {
                        @match attempt.lease_ends { Some(at) => (instant(at, now)), None => "no lease" }
                    } }
                    td data-name="outcome" { span { (outcome(attempt)) } }
                    @if batched { td data-name="batch" { (attempt.batch.as_deref().unwrap_or("alone")) } }
                } } }
            } }
        }
    }
}

fn timeline(shown: &Shown, now: Timestamp) -> Markup {
    html! {
        div.table { table.cards {
            thead { tr { th { "at" } th { "event" } th { "from" } th { "to" } th { "by" } th { "why" } } }
            tbody {
                tr {
                    td data-name="at" { span { (instant(shown.frozen_at, now)) } }
                    td data-name="event" { "frozen" } td data-name="from" {}
                    td data-name="to" { "selected" } td data-name="by" { "eligibility" }
                    td data-name="why" {}
                }
                @for line in &shown.timeline { tr {
                    td data-name="at" { span { (instant(line.at, now)) } }
                    td data-name="event" { (line.event) }
                    td data-name="from" { (line.from.as_deref().unwrap_or_default()) }
                    td data-name="to" { (line.to.as_deref().unwrap_or_default()) }
                    td data-name="by" { (line.by) }
                    td data-name="why" { span {
                        (line.reason.as_deref().unwrap_or_default())
                        @if let Some(note) = &line.note { " (" (note) ")" }
                    } }
                } }
            }
        } }
    }
}

/// Leads to an operation by its key or Message-ID, or lists those of a customer.
pub(super) async fn find(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failed> {
    let fields = Fields::of_query(&uri);
    let asked = fields.one("q").unwrap_or_default().trim();
    if let Ok(key) = cli::key(asked) {
        return Ok(Redirect::to(&operation_path(&key.to_string())).into_response());
    }
    let keys = desk.keys_of(asked).await?;
    if let [only] = keys.as_slice() {
        return Ok(Redirect::to(&operation_path(&only.to_string())).into_response());
    }
    let mut found = Vec::new();
    for key in &keys {
        found.push(desk.ledger.show(key).await?);
    }
    let body = html! {
        h1 { "Found" }
        @if found.is_empty() {
            p {
                "The ledger knows no operation of this customer. Write the id as your source has it, a whole "
                "operation key, or the Message-ID of a mail; an address finds nobody."
            }
        } @else {
            ul { @for shown in &found { li {
                (operation_link(&shown.key)) ": " (shown.state.name())
                @if let Some(class) = shown.class.map(FailureClass::name) { " (" (class) ")" }
            } } }
        }
    };
    Ok(page(&desk, &caller, "Found", &body, false).into_response())
}
