//! How the sandbox answers, and how an answer is lost or spoilt on its way.

use super::faults::FaultKind;
use super::line::Line;
use super::wire::{Accepted, Refusal, code};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use futures::future::ready;
use futures::{StreamExt, stream};
use jiff::SignedDuration;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

/// An answer before anything spoils it.
pub(super) struct Plain {
    pub(super) status: StatusCode,
    /// The message's id, or the documented code.
    pub(super) body: Result<Accepted, &'static str>,
    pub(super) retry_after: Option<String>,
}

impl Plain {
    /// A refusal with a documented code.
    pub(super) fn refusal(status: StatusCode, code: &'static str) -> Self {
        Self { status, body: Err(code), retry_after: None }
    }

    /// Nobody knows what became of it.
    pub(super) fn internal() -> Self {
        Self::refusal(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL)
    }
}

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        let wait = self.retry_after.map(|wait| [(RETRY_AFTER, wait)]);
        match self.body {
            Ok(accepted) => (self.status, wait, Json(accepted)).into_response(),
            Err(code) => {
                (self.status, wait, Json(Refusal { code: code.to_owned() })).into_response()
            }
        }
    }
}

/// Gives `plain` back as the script wants it to arrive, or not to arrive. What hangs is cut when
/// `stopped`; a late answer comes `late` after it was ready.
pub(super) async fn spoil(
    plain: Plain,
    spoilt: Option<FaultKind>,
    line: &Line,
    late: Duration,
    stopped: impl Future<Output = ()>,
) -> Response {
    match spoilt {
        Some(FaultKind::AcceptThenHang | FaultKind::HangBeforeAcceptance) => {
            stopped.await;
            line.cut();
        }
        Some(FaultKind::AcceptThenReset | FaultKind::ResetBeforeAcceptance) => line.cut(),
        Some(FaultKind::AcceptThenLateAnswer) => {
            tokio::select! {
                () = tokio::time::sleep(late) => {}
                () = stopped => line.cut(),
            }
        }
        Some(FaultKind::AcceptThenServerError | FaultKind::ServerError) => {
            return Plain::internal().into_response();
        }
        Some(FaultKind::AcceptThenGarbage) => {
            return ([(CONTENT_TYPE, "text/html")], "<html>not what you expect</html>")
                .into_response();
        }
        Some(FaultKind::AcceptThenTruncate) => return truncated(),
        _ => {}
    }
    plain.into_response()
}

/// A 200 whose body breaks off after its head and first bytes were sent.
fn truncated() -> Response {
    let begun = stream::once(ready(Ok(Bytes::from_static(br#"{"id":"sand"#))));
    let broken = stream::once(async {
        // Lets what was given so far go out before the connection ends.
        tokio::task::yield_now().await;
        Err(io::Error::from(ErrorKind::ConnectionReset))
    });
    Body::from_stream(begun.chain(broken)).into_response()
}

/// The value of `Retry-After` for `wait`, never shorter than it.
pub(super) fn retry_after(wait: SignedDuration, as_date: bool) -> String {
    let seconds = wait.as_secs() + i64::from(wait.subsec_nanos() > 0);
    if !as_date {
        return seconds.to_string();
    }
    // A date has no fractions: one second more, so that it is not early either.
    let wait = Duration::from_secs(seconds.unsigned_abs() + 1);
    httpdate::fmt_http_date(SystemTime::now() + wait)
}
