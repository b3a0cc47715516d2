//! The console: for whoever is woken by an alert and has never read the code. It says whether anybody
//! got two messages, who has none yet and why, what waits for a person, and what is safe to do.
//!
//! Pages are written by the server, work without script, and show no address and no content. Whatever
//! changes something says first what it will do, and asks why.

mod assets;
mod dead;
mod events;
mod fields;
mod operation;
mod page;
mod runs;
mod sign_in;
mod unknown;

pub use events::Watch;

use super::access::{Caller, Denied};
use super::desk::Shared;
use super::problem::Problem;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use maud::Markup;
use page::failure;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use url::form_urlencoded;

/// No form is longer: one that names the most keys that one request may decide about.
const BODY_BYTES_MAX: usize = 1_000_000;

/// A form to sign in that is still not whole after this long is given up.
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(10);

/// A page, or why there is none.
type Answer = Result<Markup, Failed>;

/// Why a page cannot be shown, as a page.
struct Failed(Problem);

impl<E: Into<Problem>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0.status(), failure(self.0.status(), self.0.detail(), self.0.refused()))
            .into_response()
    }
}

/// The routes of the console.
pub fn router(desk: &Shared, watch: Arc<Watch>) -> Router<Shared> {
    let pages =
        pages().into_iter().fold(Router::new(), |router, (path, page)| router.route(path, page));
    pages
        .fallback(nowhere)
        .layer(from_fn_with_state(desk.clone(), only_known))
        .layer(Extension(watch))
        .route("/sign-in", get(sign_in::ask).merge(in_time(post(sign_in::enter))))
        .route("/assets/console.css", get(assets::css))
        .route("/assets/console.js", get(assets::js))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The paths of every page that somebody has to be let in for.
pub fn paths() -> impl Iterator<Item = &'static str> {
    pages().into_iter().map(|(path, _)| path)
}

fn pages() -> [(&'static str, MethodRouter<Shared>); 11] {
    [
        ("/", get(runs::all)),
        ("/runs/{period}", get(runs::one)),
        ("/runs/{period}/{decision}", get(runs::ask).post(runs::take)),
        ("/unknown", get(unknown::all)),
        ("/unknown/resolve", get(unknown::ask).post(unknown::take)),
        ("/dead-letters", get(dead::all)),
        ("/dead-letters/replay", get(dead::ask).post(dead::take)),
        ("/operations/{key}", get(operation::one)),
        ("/find", get(operation::find)),
        ("/sign-out", post(sign_in::leave)),
        ("/events", get(events::stream)),
    ]
}

/// Whoever is not let in yet has not long for what they send.
fn in_time(route: MethodRouter<Shared>) -> MethodRouter<Shared> {
    route.layer(from_fn(async |request: Request, next: Next| {
        let answer = tokio::time::timeout(SIGN_IN_TIME_MAX, next.run(request)).await;
        answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    }))
}

async fn nowhere() -> Failed {
    Failed(Problem::new(StatusCode::NOT_FOUND, "there is no such page; begin at /"))
}

/// Lets in whoever the access knows, and sends others to sign in.
async fn only_known(
    State(desk): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    match desk.access.of_page(from.ip(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert::<Caller>(caller);
            next.run(request).await
        }
        // Events are asked for by script, which cannot sign in.
        Err(Denied::Missing) if request.uri().path() != "/events" => {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let next: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
            Redirect::to(&format!("/sign-in?next={next}")).into_response()
        }
        Err(denied) => Failed::from(denied).into_response(),
    }
}
