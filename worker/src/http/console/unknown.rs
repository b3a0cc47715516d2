//! What may or may not have been delivered, and what a person says about it.

use super::Answer;
use super::fields::Fields;
use super::page::{PAGE, confirmation, instant, operation_link, page, query, results, text_of};
use crate::http::access::Caller;
use crate::http::decisions::{self, Came, after_of, keys_in_doubt, unusable};
use crate::http::desk::Shared;
use crate::http::problem::Problem;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use digest_activities::ledger::Listing;
use digest_workflows::operation::{self, Verdict};
use jiff::Timestamp;
use maud::{Markup, html};

/// The unknown operations.
pub(super) async fn all(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let fields = Fields::of_query(&uri);
    let period = fields.period()?;
    let now = desk.ledger.now().await?;
    let unknown = operation::State::Unknown;
    let after = after_of(fields.one("after"))?;
    let listing =
        desk.ledger.list(desk.campaign(), unknown, period, after.as_deref(), PAGE).await?;
    let of = period.map(|period| format!(" in {period}")).unwrap_or_default();
    let body = html! {
        h1 { "Unknown" (of) }
        p {
            "The provider may or may not have accepted these: its answer was lost. None of them is sent "
            "again on suspicion. What waits for a person waits for you: find out at the provider or at the "
            "customer's, and say what you found."
        }
        @if listing.operations.is_empty() {
            p.good { "No delivery is unknown." }
        } @else {
            (list(&listing, now))
        }
        @if let Some(next) = &listing.next {
            p { a href={ "/unknown?" (query(&[("period", &text_of(period)), ("after", next)])) } { "More" } }
        }
    };
    Ok(page(&desk, &caller, "Unknown", &body, true))
}

fn list(listing: &Listing, now: Timestamp) -> Markup {
    html! {
        form action="/unknown/resolve" {
            div.table { table.cards {
                thead { tr {
                    th { input type="checkbox" data-all aria-label="all of them"; }
                    th { "key" } th { "since" } th { "attempts" } th { "waits for" }
                } }
                tbody { @for line in &listing.operations { tr {
                    td data-name="choose" {
                        input type="checkbox" name="key" value=(line.key) aria-label={ "choose " (line.key) };
                    }
                    td data-name="key" { (operation_link(&line.key)) }
                    td data-name="since" { span { (instant(line.since, now)) } }
                    td data-name="attempts" { (line.attempts) }
                    td data-name="waits for" { span { (line.waits_for) } }
                } } }
            } }
            p { "The chosen ones were …" }
            div.actions { @for verdict in Verdict::ALL {
                button name="verdict" value=(verdict.name()) { (label(verdict)) " …" }
            } }
            p.soft {
                "\u{201c}Delivered\u{201d} and \u{201c}abandon\u{201d} never send anything. "
                "\u{201c}Not delivered\u{201d} lets the rules send again: if it was delivered after all, "
                "the customer gets two. Each says first what it will do."
            }
        }
    }
}

/// What the verdict would do, and the button that records it.
pub(super) async fn ask(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let fields = Fields::of_query(&uri);
    let verdict = verdict_of(&fields)?;
    let attempt = attempt_of(&fields)?;
    let keys = keys_in_doubt(&desk, &fields.all("key"))?;
    let answer = decisions::resolve(&desk, &keys, verdict, attempt, None).await?;
    let hidden = html! {
        input type="hidden" name="verdict" value=(verdict.name());
        @for one in &answer.results { @if one.result == Came::Would {
            input type="hidden" name="key" value=(one.key);
        } }
        @if let Some(attempt) = attempt { input type="hidden" name="attempt" value=(attempt); }
    };
    let body = html! {
        h1 { (label(verdict)) "?" }
        p { (meaning(verdict)) }
        (results(&answer))
        @if answer.results.iter().any(|one| one.result == Came::Would) {
            (confirmation(&caller, "/unknown/resolve", &hidden, &format!("Record \u{201c}{}\u{201d}", label(verdict))))
        }
    };
    Ok(page(&desk, &caller, label(verdict), &body, false))
}

/// Records it, and says what was done.
pub(super) async fn take(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let fields = Fields::of_change(&desk, &caller, &headers, &body)?;
    let verdict = verdict_of(&fields)?;
    let attempt = attempt_of(&fields)?;
    let keys = keys_in_doubt(&desk, &fields.all("key"))?;
    let decider = fields.decider(&caller)?;
    let answer = decisions::resolve(&desk, &keys, verdict, attempt, Some(&decider)).await?;
    let body = html! {
        h1 { (label(verdict)) }
        div role="status" { (results(&answer)) }
        p { a href="/unknown" { "What else is unknown" } }
    };
    Ok(page(&desk, &caller, label(verdict), &body, false))
}

fn verdict_of(fields: &Fields) -> Result<Verdict, Problem> {
    let name = fields.one("verdict").unwrap_or_default();
    Verdict::ALL
        .into_iter()
        .find(|verdict| verdict.name() == name)
        .ok_or_else(|| unusable("verdict: say delivered, not_delivered or abandon"))
}

fn attempt_of(fields: &Fields) -> Result<Option<u32>, Problem> {
    let attempt = fields.one("attempt").map(str::parse).transpose();
    attempt.map_err(|_| unusable("attempt: this is no number"))
}

const fn label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered => "Delivered",
        Verdict::NotDelivered => "Not delivered",
        Verdict::Abandon => "Abandon",
    }
}

const fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered => {
            "Say this if you know that the customer has the message. It counts as sent, is cleaned up, and \
             is never sent again."
        }
        Verdict::NotDelivered => {
            "Say this only if you know that the provider never accepted it. The rules then send it again, \
             but never before its last attempt can no longer be answered. If it was delivered after all, \
             the customer gets two."
        }
        Verdict::Abandon => {
            "Say this if nobody will find out. It is given up for good: never sent again, and the customer \
             may have it or not."
        }
    }
}

/// The buttons for one key, with the attempt that they are about.
pub(super) fn buttons(key: &str, attempt: u32) -> Markup {
    html! {
        form.actions action="/unknown/resolve" {
            input type="hidden" name="key" value=(key);
            input type="hidden" name="attempt" value=(attempt);
            @for verdict in Verdict::ALL {
                button name="verdict" value=(verdict.name()) { (label(verdict)) " …" }
            }
        }
    }
}
