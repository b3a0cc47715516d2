//! Path, query and body of a request, whose faults are problems like all others.

use crate::http::problem::Problem;
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// What the path names.
pub(super) struct Named<T>(pub(super) T);

/// What the query asks for.
pub(super) struct Asked<T>(pub(super) T);

/// What the body gives.
pub(super) struct Given<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Named<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        let refused = |error: PathRejection| Problem::new(error.status(), error.body_text());
        found.map(|Path(value)| Self(value)).map_err(refused)
    }
}

impl<T, S> FromRequestParts<S> for Asked<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = Query::<T>::try_from_uri(&parts.uri);
        let refused = |error: QueryRejection| Problem::new(error.status(), error.body_text());
        found.map(|Query(value)| Self(value)).map_err(refused)
    }
}

impl<T, S> FromRequest<S> for Given<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            // Its text may quote the body, of which nothing is told back.
            Err(JsonRejection::JsonDataError(_)) => Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the body has a key or a value that is not taken; GET /api/v1/openapi.json has its \
                 shape",
            )),
            Err(error) => Err(Problem::new(error.status(), error.body_text())),
        }
    }
}
