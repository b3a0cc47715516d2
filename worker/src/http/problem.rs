//! Errors of the API: problem details (RFC 9457).

use super::access::Denied;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use digest_activities::ledger::LedgerError;
use digest_workflows::operation::OperationKey;
use serde::Serialize;
use utoipa::ToSchema;

/// How long a client should wait before it asks again, in seconds, where an outside part was away.
const AGAIN: u64 = 5;

/// What went wrong, as `application/problem+json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the status says what kind it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    #[schema(value_type = String, example = "Conflict")]
    title: &'static str,
    /// The status.
    #[schema(example = 409)]
    status: u16,
    /// What was tried, what came back, and what to do next.
    detail: String,
    /// The keys that are not decided, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedKey>,
    #[serde(skip)]
    retry_after: Option<u64>,
}

/// A key that nothing was decided about.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RefusedKey {
    /// The key.
    pub key: String,
    /// Why.
    pub why: String,
}

impl RefusedKey {
    /// `key`, and why nothing is decided about it.
    #[must_use]
    pub fn new(key: &OperationKey, why: String) -> Self {
        Self { key: key.to_string(), why }
    }
}

impl Problem {
    /// A problem that asking again in the same way does not solve.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("error"),
            status: status.as_u16(),
            detail: detail.into(),
            refused: Vec::new(),
            retry_after: None,
        }
    }

    /// With the keys that are not decided.
    #[must_use]
    pub fn with_refused(self, refused: Vec<RefusedKey>) -> Self {
        Self { refused, ..self }
    }

    /// What was tried, what came back, and what to do next.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The keys that are not decided, each with the reason.
    #[must_use]
    pub fn refused(&self) -> &[RefusedKey] {
        &self.refused
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn again(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let detail = error.to_string();
        match error {
            LedgerError::NoSuchOperation(_) | LedgerError::NoSuchRun { .. } => {
                Self::new(StatusCode::NOT_FOUND, detail)
            }
            error if error.is_temporary() => {
                tracing::warn!(%error, "the ledger did not answer a request");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).again(AGAIN)
            }
            error => {
                tracing::error!(%error, "a request failed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
            }
        }
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let detail = denied.to_string();
        match denied {
            Denied::Wait(time) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, detail).again(time.as_secs().max(1))
            }
            Denied::NoToken | Denied::Missing | Denied::Wrong => {
                Self::new(StatusCode::UNAUTHORIZED, detail)
            }
            Denied::Host => Self::new(StatusCode::MISDIRECTED_REQUEST, detail),
            Denied::Forged => Self::new(StatusCode::FORBIDDEN, detail),
            Denied::Name => Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let json = HeaderValue::from_static("application/problem+json");
        let mut response = (self.status(), [(header::CONTENT_TYPE, json)], body).into_response();
        if self.status() == StatusCode::UNAUTHORIZED {
            // RFC 9110, 11.6.1: a 401 says how to authenticate.
            let how = HeaderValue::from_static("Bearer realm=\"digestd\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
