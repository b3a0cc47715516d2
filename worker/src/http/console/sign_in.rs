//! Signing in with the operator's token, and out.

use super::fields::Fields;
use super::page::{frame, sentence};
use super::{Answer, Failed};
use crate::http::access::{Caller, Denied};
use crate::http::desk::Shared;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use std::net::SocketAddr;

pub(super) async fn ask(State(desk): State<Shared>, uri: Uri) -> Answer {
    let fields = Fields::of_query(&uri);
    Ok(form(desk.access.has_token(), fields.one("next").unwrap_or("/"), None))
}

pub(super) async fn enter(
    State(desk): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    body: Bytes,
) -> Response {
    let fields = Fields::of_body(&body);
    let next = fields.one("next").unwrap_or("/");
    let (token, name) = (fields.one("token"), fields.one("name"));
    match desk.access.sign_in(from.ip(), token.unwrap_or_default(), name.unwrap_or_default()) {
        Ok(cookie) => {
            ([(header::SET_COOKIE, cookie)], Redirect::to(own_path(next))).into_response()
        }
        Err(denied) => {
            let status = match denied {
                Denied::Wait(_) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::UNAUTHORIZED,
            };
            (status, form(desk.access.has_token(), next, Some(denied))).into_response()
        }
    }
}

pub(super) async fn leave(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failed> {
    Fields::of_change(&desk, &caller, &headers, &body)?;
    let out = [(header::SET_COOKIE, desk.access.sign_out())];
    Ok((out, Redirect::to("/sign-in")).into_response())
}

/// Where to go on: a path of ours, and never another host.
fn own_path(next: &str) -> &str {
    let is_own = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains('\\')
        && !next.chars().any(char::is_control);
    if is_own { next } else { "/" }
}

fn form(has_token: bool, next: &str, denied: Option<Denied>) -> Markup {
    frame(
        "Sign in",
        &html! {
            header { span.brand { "digestd" } }
            main {
                h1 { "Sign in" }
                p { "Everybody who has the operator's token may look, and decide in their own name." }
                @if let Some(denied) = denied {
                    p.bad role="alert" { (sentence(&denied.to_string())) }
                }
                @if has_token {
                    form method="post" action="/sign-in" {
                        input type="hidden" name="next" value=(next);
                        label for="name" { "Your name, which your decisions will carry" }
                        input id="name" name="name" required maxlength="60" autocomplete="username";
                        label for="token" { "The operator's token (" code { "DIGESTD_HTTP_TOKEN" } ")" }
                        input id="token" name="token" type="password" required autocomplete="current-password";
                        div.actions { button { "Sign in" } }
                    }
                } @else {
                    p { "There is nothing to sign in with: no token is set." }
                    p { a href="/" { "To the runs" } }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_another_host() {
        assert_eq!(own_path("/runs/2026-W49?x=1"), "/runs/2026-W49?x=1");
        for other in ["https://evil.example", "//evil.example", "/\\evil.example", "", "/\r\nx: y"]
        {
            assert_eq!(own_path(other), "/", "{other}");
        }
    }
}
