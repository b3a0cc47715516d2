//! The API: what the commands read and decide, over HTTP, as the same JSON. Its document is made from
//! the handlers, so that neither tells what the other does not.

mod decide;
mod extract;
pub(super) mod publish;
mod read;

use super::access::Caller;
use super::desk::Shared;
use super::problem::Problem;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router};
use std::net::SocketAddr;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, OpenApi as Document, Ref, Response as Answer, ResponseBuilder,
};
use utoipa::{Modify, OpenApi};

/// A body is no longer: that of the most keys that one request may decide about.
const BODY_BYTES_MAX: usize = 1_000_000;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "digestd",
        description = "Reads and decides what the commands of digestd do, with the same JSON. Nothing \
                       here shows an address or content. Lists are paged: `next` is the key that the \
                       next page begins after. A decision with `dry_run` tells what it would do and \
                       does nothing."
    ),
    paths(
        read::runs,
        read::run,
        decide::hold,
        decide::resume,
        decide::cancel,
        read::unknown,
        decide::resolve,
        read::dead_letters,
        decide::replay,
        read::operations,
        publish::publish,
        read::operation,
    ),
    modifiers(&Token, &Refusals),
    security(("token" = []))
)]
struct Api;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut Document) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("the value of DIGESTD_HTTP_TOKEN"))
            .build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(token));
    }
}

/// How any request may be refused.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut Document) {
        const ALL: [(&str, &str); 4] = [
            ("400", "the path, the query or the body cannot be read"),
            ("401", "the token is missing or wrong"),
            (
                "429",
                "too many wrong tokens came from this address; Retry-After says when to try again",
            ),
            ("503", "the ledger, or the source, does not answer; ask again"),
        ];
        const WITH_A_BODY: [(&str, &str); 3] = [
            ("413", "the body is too large"),
            ("415", "the body is not said to be JSON"),
            ("422", "the body says something that cannot be used"),
        ];
        for item in document.paths.paths.values_mut() {
            for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
                let with_a_body =
                    if operation.request_body.is_some() { &WITH_A_BODY[..] } else { &[] };
                for (status, description) in ALL.iter().chain(with_a_body) {
                    let answers = &mut operation.responses.responses;
                    answers.insert((*status).to_owned(), refusal(description).into());
                }
            }
        }
    }
}

fn refusal(description: &str) -> Answer {
    let schema = Ref::from_schema_name("Problem");
    let problem = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", problem)
        .build()
}

/// Every path, with what answers there.
fn routes() -> [(&'static str, MethodRouter<Shared>); 11] {
    [
        ("/api/v1/runs", get(read::runs)),
        ("/api/v1/runs/{period}", get(read::run)),
        ("/api/v1/runs/{period}/hold", post(decide::hold)),
        ("/api/v1/runs/{period}/resume", post(decide::resume)),
        ("/api/v1/runs/{period}/cancel", post(decide::cancel)),
        ("/api/v1/unknown", get(read::unknown)),
        ("/api/v1/unknown/resolve", post(decide::resolve)),
        ("/api/v1/dead-letters", get(read::dead_letters)),
        ("/api/v1/dead-letters/replay", post(decide::replay)),
        ("/api/v1/operations", get(read::operations).post(publish::publish)),
        ("/api/v1/operations/{key}", get(read::operation)),
    ]
}

/// The routes of the API, asked only with the operator's token.
pub fn router(desk: &Shared) -> Router<Shared> {
    let routes = routes().into_iter();
    routes
        .fold(Router::new(), |router, (path, route)| router.route(path, route))
        .route("/api/v1/openapi.json", get(async || Json(document())))
        .route("/api/{*rest}", any(nowhere))
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(desk.clone(), only_with_token))
}

/// The document that describes the API.
#[must_use]
pub fn document() -> Document {
    Api::openapi()
}

async fn nowhere() -> Problem {
    let cure = "GET /api/v1/openapi.json lists what there is";
    Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at this path; {cure}"))
}

async fn not_so() -> Problem {
    let cure = "GET /api/v1/openapi.json lists what there is";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("this path takes another method; {cure}"))
}

async fn only_with_token(
    State(desk): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    match desk.access.of_api(from.ip(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert::<Caller>(caller);
            next.run(request).await
        }
        Err(denied) => Problem::from(denied).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_is_in_the_document() {
        let served: BTreeSet<String> =
            routes().iter().map(|(path, _)| (*path).to_owned()).collect();
        let told: BTreeSet<String> = document().paths.paths.keys().cloned().collect();
        assert_eq!(served, told);
    }
}
