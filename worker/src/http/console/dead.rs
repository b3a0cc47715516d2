//! Dead letters: what ended without being sent, and sending it again.

use super::Answer;
use super::fields::Fields;
use super::page::{PAGE, confirmation, instant, operation_link, page, query, results, text_of};
use crate::http::access::Caller;
use crate::http::decisions::{self, after_of, keys_to_replay, unusable};
use crate::http::desk::Shared;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use digest_activities::ledger::Listing;
use digest_workflows::operation::{FailureClass, OperationKey, Period};
use jiff::Timestamp;
use maud::{Markup, html};

/// The dead letters, of one class or all.
pub(super) async fn all(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let fields = Fields::of_query(&uri);
    let period = fields.period()?;
    let class = match fields.one("class") {
        Some(name) => Some(FailureClass::from_name(name).ok_or_else(|| {
            let known: Vec<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
            unusable(format!("class: there is none of that name; take one of {}", known.join(", ")))
        })?),
        None => None,
    };
    let now = desk.ledger.now().await?;
    let after = after_of(fields.one("after"))?;
    let after = after.as_deref();
    let listing = desk.ledger.dead_letters(desk.campaign(), period, class, after, PAGE).await?;
    let of = period.map(|period| format!(" in {period}")).unwrap_or_default();
    let max = desk.config.replay.max_keys;
    let body = html! {
        h1 { "Dead letters" (of) }
        p {
            "These ended without being sent, each for a definite reason. They stay until somebody replays "
            "them; leaving them alone sends nothing."
        }
        (filter(period, class))
        @if listing.operations.is_empty() {
            p.good { "There is no dead letter." }
        } @else {
            (list(&listing, max, now))
        }
        @if let Some(next) = &listing.next {
            @let class = class.map_or("", FailureClass::name);
            @let more = query(&[("period", &text_of(period)), ("class", class), ("after", next)]);
            p { a href={ "/dead-letters?" (more) } { "More" } }
        }
    };
    Ok(page(&desk, &caller, "Dead letters", &body, true))
}

fn filter(period: Option<Period>, class: Option<FailureClass>) -> Markup {
    html! {
        form.actions action="/dead-letters" {
            input name="period" value=(text_of(period)) placeholder="2026-W49" aria-label="period";
            select name="class" aria-label="class" {
                option value="" { "every class" }
                @for one in FailureClass::ALL {
                    option value=(one.name()) selected[class == Some(one)] { (one.name()) }
                }
            }
            button { "Show" }
        }
    }
}

fn list(listing: &Listing, max: u32, now: Timestamp) -> Markup {
    html! {
        form action="/dead-letters/replay" {
            div.table { table.cards {
                thead { tr {
                    th { input type="checkbox" data-all aria-label="all of them"; }
                    th { "key" } th { "class" } th { "code" } th { "since" } th { "waits for" }
                } }
                tbody { @for line in &listing.operations { tr {
                    td data-name="choose" {
                        input type="checkbox" name="key" value=(line.key) aria-label={ "choose " (line.key) };
                    }
                    td data-name="key" { (operation_link(&line.key)) }
                    td data-name="class" { (line.class.map_or("", FailureClass::name)) }
                    td data-name="code" { span { (line.code.as_deref().unwrap_or_default()) } }
                    td data-name="since" { span { (instant(line.since, now)) } }
                    td data-name="waits for" { span { (line.waits_for) } }
                } } }
            } }
            p.soft { "At most " (max) " of one period at once. Only what is certainly not sent can be replayed." }
            div.actions {
                button name="how" value="frozen" { "Replay as frozen …" }
                button name="how" value="refreeze" { "Replay rendered anew …" }
            }
        }
    }
}

/// What a replay would do, and the button that does it.
pub(super) async fn ask(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let fields = Fields::of_query(&uri);
    let refreeze = fields.one("how") == Some("refreeze");
    let keys = keys_of_one_period(&desk, &fields)?;
    let answer = decisions::replay(&desk, &keys, refreeze, None).await?;
    let hidden = html! {
        input type="hidden" name="how" value=(if refreeze { "refreeze" } else { "frozen" });
        @for key in &keys { input type="hidden" name="key" value=(key); }
    };
    let count = crate::decide::replay::count(keys.len());
    let body = html! {
        h1 { "Send " (count) " again?" }
        p {
            @if refreeze {
                "Each is rendered anew from today's data and templates, and sent: the thing to do after an "
                "address or a template was corrected."
            } @else {
                "Each is sent as it was frozen, the same bytes: the thing to do after a provider's fault was "
                "corrected."
            }
        }
        (results(&answer))
        (confirmation(&caller, "/dead-letters/replay", &hidden, &format!("Send {count} again")))
    };
    Ok(page(&desk, &caller, "Replay", &body, false))
}

/// Replays them, all or none, and says what was done.
pub(super) async fn take(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let fields = Fields::of_change(&desk, &caller, &headers, &body)?;
    let refreeze = fields.one("how") == Some("refreeze");
    let keys = keys_of_one_period(&desk, &fields)?;
    let decider = fields.decider(&caller)?;
    let answer = decisions::replay(&desk, &keys, refreeze, Some(&decider)).await?;
    let body = html! {
        h1 { "Replayed" }
        div role="status" { (results(&answer)) }
        p { a href="/dead-letters" { "The other dead letters" } }
    };
    Ok(page(&desk, &caller, "Replayed", &body, false))
}

/// One replay is about one run.
fn keys_of_one_period(desk: &Shared, fields: &Fields) -> Result<Vec<OperationKey>, super::Failed> {
    let keys = keys_to_replay(desk, &fields.all("key"), None)?;
    let first = keys.first().map(OperationKey::period);
    if keys.iter().any(|key| Some(key.period()) != first) {
        return Err(unusable(
            "the chosen keys are of several periods; replay those of one at a time",
        )
        .into());
    }
    Ok(keys)
}
