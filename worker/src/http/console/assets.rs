//! The style and the little script of the console.

use axum::http::header;
use axum::response::IntoResponse;

/// Asked for anew each time, since they change with the binary.
const NO_CACHE: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-cache");

pub(super) async fn css() -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "text/css; charset=utf-8");
    ([kind, NO_CACHE], include_str!("console.css"))
}

pub(super) async fn js() -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "text/javascript; charset=utf-8");
    ([kind, NO_CACHE], include_str!("console.js"))
}
