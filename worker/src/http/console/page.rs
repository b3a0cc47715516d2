//! What every page has around it, and the small pieces that pages are made of.

use crate::http::access::Caller;
use crate::http::decisions::{Came, KeysAnswer};
use crate::http::desk::Desk;
use crate::http::problem::RefusedKey;
use crate::report::ago;
use axum::http::StatusCode;
use digest_workflows::operation::Period;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use url::form_urlencoded;

/// How many operations a page of a list has.
pub(super) const PAGE: u32 = 100;

/// A page of the console. What is `live` is written anew when there is news.
pub(super) fn page(desk: &Desk, caller: &Caller, title: &str, body: &Markup, live: bool) -> Markup {
    frame(
        title,
        &html! {
            header {
                a.skip href="#main" { "To the content" }
                a.brand href="/" { "digestd · " (desk.campaign()) }
                nav aria-label="pages" {
                    @for (path, name) in [("/", "Runs"), ("/unknown", "Unknown"), ("/dead-letters", "Dead letters")] {
                        a href=(path) aria-current=[(name == title).then_some("page")] { (name) }
                    }
                }
                form action="/find" role="search" {
                    input name="q" aria-label="customer id or operation key" placeholder="customer or key";
                    button { "Find" }
                }
                div.who {
                    @if caller.mark.is_none() {
                        span { "read only" }
                    } @else {
                        span { (caller.name) }
                    }
                    @if caller.signed_in {
                        form method="post" action="/sign-out" {
                            (mark(caller))
                            button { "Sign out" }
                        }
                    }
                }
            }
            main id="main" {
                p id="note" role="status" hidden {}
                @if live { div data-live { (body) } } @else { (body) }
            }
            footer.soft {
                "Times are UTC. The same from the command line: "
                code { "digestd status" } ", " code { "digestd unknown" } ", "
                code { "digestd dead-letters" } ", " code { "digestd show" } "."
            }
        },
    )
}

/// A page without anybody's name on it.
pub(super) fn frame(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · digestd" }
                link rel="stylesheet" href="/assets/console.css";
                link rel="icon" href="data:,";
                script src="/assets/console.js" defer {}
            }
            body { (body) }
        }
    }
}

/// The page of a request that failed.
pub(super) fn failure(status: StatusCode, detail: &str, refused: &[RefusedKey]) -> Markup {
    let title = status.canonical_reason().unwrap_or("It failed");
    frame(
        title,
        &html! {
            main {
                h1 { (title) }
                p.bad role="alert" { (sentence(detail)) }
                @if !refused.is_empty() {
                    ul { @for one in refused { li { (operation_link(&one.key)) ": " (one.why) } } }
                }
                p { a href="/" { "Back to the runs" } }
            }
        },
    )
}

/// The hidden field that shows a form to be of the caller's own session.
pub(super) fn mark(caller: &Caller) -> Markup {
    html! { input type="hidden" name="mark" value=(caller.mark.as_deref().unwrap_or_default()); }
}

/// Asks why, and has the button that does it; tells one who may only look how to be let in.
pub(super) fn confirmation(caller: &Caller, action: &str, hidden: &Markup, button: &str) -> Markup {
    if caller.mark.is_none() {
        return html! {
            p.warn {
                "You may only look, because no token is set. Set " code { "DIGESTD_HTTP_TOKEN" }
                " at the worker and restart it, or use the command line."
            }
        };
    }
    html! {
        form method="post" action=(action) {
            (mark(caller))
            (hidden)
            label for="reason" { "Why, in your words. It is kept beside the decision, so without an address." }
            textarea id="reason" name="reason" rows="2" required maxlength="500" {}
            div.actions {
                button.strong { (button) }
                a.button href="/" { "Change nothing" }
            }
        }
    }
}

/// What became, or would become, of keys.
pub(super) fn results(answer: &KeysAnswer) -> Markup {
    html! {
        @if let Some(because) = &answer.held_because {
            p.warn { "The run is held (" (because) "): nothing is sent before it is resumed." }
        }
        div.table { table.cards {
            thead { tr { th { "key" } th { "what" } } }
            tbody { @for one in &answer.results { tr {
                td data-name="key" { (operation_link(&one.key)) }
                td data-name="what" {
                    span.bad[one.result == Came::Refused] { (one.says) }
                }
            } } }
        } }
    }
}

/// A key that leads to its page.
pub(super) fn operation_link(key: &str) -> Markup {
    html! { a.key href=(operation_path(key)) { (key) } }
}

/// The path of an operation's page.
pub(super) fn operation_path(key: &str) -> String {
    // A key's own `%` is encoded once more; everything else in it may stand in a path.
    format!("/operations/{}", key.replace('%', "%25"))
}

/// The rest of a link to a list, for these fields that are not empty.
pub(super) fn query(fields: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    query.finish()
}

/// A period in a link, or nothing.
pub(super) fn text_of(period: Option<Period>) -> String {
    period.map(|period| period.to_string()).unwrap_or_default()
}

/// An instant, and how long it is from `now`.
pub(super) fn instant(at: Timestamp, now: Timestamp) -> Markup {
    let span = now.duration_since(at);
    html! {
        time datetime=(at) { (at.strftime("%a %d %b %H:%M:%S")) }
        span.soft {
            @if span.is_negative() { " (in " (ago(-span)) ")" } @else { " (" (ago(span)) " ago)" }
        }
    }
}

/// What was said in a fragment, as a sentence. A key or an id at its beginning stays as it is.
pub(super) fn sentence(text: &str) -> String {
    let is_word = !text.split(' ').next().unwrap_or_default().contains(':');
    let mut letters = text.chars();
    let upper = |first: char| if is_word { first.to_uppercase().to_string() } else { first.into() };
    let first = letters.next().map(upper).unwrap_or_default();
    let rest = letters.as_str();
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{rest}{end}")
}
