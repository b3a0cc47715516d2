//! Publishing one operation: the customer is read from the source by the campaign's own query, so that
//! no address comes over the API, and consent is asked as for everybody else.

use super::extract::Given;
use super::read::show;
use crate::http::access::Caller;
use crate::http::decisions::{Decider, unusable};
use crate::http::desk::Shared;
use crate::http::problem::Problem;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::{Extension, Json};
use digest_activities::ledger::{Published, Shown};
use digest_activities::message::Redacted;
use digest_activities::refreeze::RefreezeError;
use digest_workflows::operation::{self, OperationKey, Period};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

/// The longest list of rows, in bytes of JSON.
const ROWS_BYTES_MAX: usize = 100_000;

/// One operation to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishBody {
    /// The customer, by the id that the source has. Everything else about them is read from there.
    #[schema(min_length = 1, example = "customer-1842")]
    customer: String,
    /// The period, whose run must be selected already.
    #[schema(value_type = String, pattern = "^[0-9]{4}-W[0-9]{2}$", example = "2026-W49")]
    period: Period,
    /// What the message is about, in the place of what the query `rows` returns: the `rows` of the
    /// templates, each an object.
    #[schema(value_type = Option<Vec<Object>>, example = json!([{"title": "A chair", "price": "19.90"}]))]
    rows: Option<Redacted<Vec<Map<String, Value>>>>,
    /// Why, in your words; without an address.
    #[schema(min_length = 1, max_length = 500, example = "asked for it again")]
    reason: Option<String>,
    /// Who publishes; `api` unless said.
    #[schema(min_length = 1, max_length = 500, example = "ann")]
    by: Option<String>,
}

/// Publishes one operation into the run of its period. The same again changes nothing and answers 200;
/// other rows under the same key are a conflict.
#[utoipa::path(post, path = "/api/v1/operations", tag = "operations",
    request_body = PublishBody, responses(
    (status = 201, body = Shown, description = "it is new", headers(("location" = String))),
    (status = 200, body = Shown, description = "it was there before"),
    (status = 409, body = Problem, content_type = "application/problem+json",
        description = "another request has this key, or the run takes no more"),
))]
pub(super) async fn publish(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Given(body): Given<PublishBody>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<Shown>), Problem> {
    let by = body.by.as_deref().unwrap_or(&caller.name);
    let decider = Decider::new(by, body.reason.as_deref().unwrap_or("published by the API"))?;
    let key = OperationKey::new(desk.campaign(), body.period, &body.customer)
        .map_err(|error| unusable(format!("customer: {error}")))?;
    let rows = body.rows.map(Redacted::into_inner);
    let request = rows.as_ref().map(|rows| hash(rows)).transpose()?;
    let request = request.as_deref();
    let published = if let Some(published) = desk.ledger.publication(&key, request).await? {
        published
    } else {
        let data = desk.customer(&key, rows).await?;
        let published = desk.ledger.publish(&key, &data, request, decider.actor()).await?;
        published.map_err(|cannot| {
            Problem::new(StatusCode::CONFLICT, format!("{key} was not published: {cannot}"))
        })?
    };
    let status = match published {
        Published::New => StatusCode::CREATED,
        Published::Same => StatusCode::OK,
        Published::Other => {
            let detail = format!(
                "{key} is there already, of another request, and stays as it is; publish under another \
                 period, or leave it"
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
    };
    if published == Published::New {
        desk.wake(vec![(key.clone(), operation::State::Selected)]);
    }
    let shown = show(&desk, &key).await?;
    let path = format!("/api/v1/operations/{}", key.to_string().replace('%', "%25"));
    Ok((status, [(header::LOCATION, path)], Json(shown)))
}

/// A hash of what is asked for, whatever the order of its keys.
fn hash(rows: &[Map<String, Value>]) -> Result<String, Problem> {
    let rows = rows.iter().cloned().map(|row| sorted(Value::Object(row))).collect();
    let text = Value::Array(rows).to_string();
    if text.len() > ROWS_BYTES_MAX {
        return Err(unusable(format!(
            "rows: {} bytes are more than the {ROWS_BYTES_MAX} that one message may be about",
            text.len()
        )));
    }
    Ok(data_encoding::HEXLOWER.encode(&Sha256::digest(text)))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Why the source's row makes no message, as a problem.
pub(in crate::http) fn unreadable(error: RefreezeError) -> Problem {
    match error {
        RefreezeError::Source(error) => {
            tracing::warn!(%error, "the source did not tell of a customer");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        }
        error @ RefreezeError::NoWindow => Problem::new(
            StatusCode::CONFLICT,
            format!("nothing was published: {error}; start it with `digestd run` and publish then"),
        ),
        error => unusable(format!("customer: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_makes_no_other_request() {
        let rows = |text: &str| serde_json::from_str::<Vec<Map<String, Value>>>(text).unwrap();
        let of = |text: &str| hash(&rows(text)).unwrap();
        let one = of(r#"[{"title": "Lamp", "shop": {"a": 1, "b": 2}}]"#);
        assert_eq!(one, of(r#"[{"shop": {"b": 2, "a": 1}, "title": "Lamp"}]"#));
        assert_ne!(one, of(r#"[{"shop": {"b": 2, "a": 1}, "title": "Sofa"}]"#));
        assert!(hash(&rows(&format!(r#"[{{"a": "{}"}}]"#, "x".repeat(ROWS_BYTES_MAX)))).is_err());
    }
}
