//! What the API decides: the same as the commands, with the same words.

use super::extract::{Given, Named};
use crate::decide::run::RunDecision;
use crate::http::access::Caller;
use crate::http::decisions::{
    self, Came, Decider, KeysAnswer, RunAnswer, conflict, keys_in_doubt, keys_to_replay,
};
use crate::http::desk::Shared;
use crate::http::problem::{Problem, RefusedKey};
use axum::extract::State;
use axum::{Extension, Json};
use digest_workflows::operation::{Period, Verdict};
use serde::Deserialize;
use utoipa::ToSchema;

/// A decision about a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// Why, in your words; without an address.
    #[schema(min_length = 1, max_length = 500, example = "wrong prices")]
    reason: String,
    /// Who decides; `api` unless said.
    #[schema(min_length = 1, max_length = 500, example = "ann")]
    by: Option<String>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// A verdict about unknown deliveries.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    /// Operation keys, or Message-IDs of their mails; at most `[replay] max_keys`.
    #[schema(min_items = 1, example = json!(["digest:2026-W49:customer-1842"]))]
    keys: Vec<String>,
    /// `delivered`, `not_delivered` or `abandon`.
    #[schema(value_type = String, pattern = "^(delivered|not_delivered|abandon)$", example = "delivered")]
    verdict: Verdict,
    /// With one key: the attempt that is meant. Refused if a newer one was handed over since.
    #[schema(minimum = 1, example = 1)]
    attempt: Option<u32>,
    /// Why, in your words; without an address.
    #[schema(min_length = 1, max_length = 500, example = "its log has no such message")]
    reason: String,
    /// Who decides; `api` unless said.
    #[schema(min_length = 1, max_length = 500, example = "ann")]
    by: Option<String>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// A replay of dead letters.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    /// The period that every key must be of.
    #[schema(value_type = String, pattern = "^[0-9]{4}-W[0-9]{2}$", example = "2026-W49")]
    period: Period,
    /// Operation keys, or Message-IDs of their mails; at most `[replay] max_keys`.
    #[schema(min_items = 1, example = json!(["digest:2026-W49:customer-1843"]))]
    keys: Vec<String>,
    /// Render from today's template and source instead of sending the frozen bytes.
    #[serde(default)]
    refreeze: bool,
    /// Why, in your words; without an address.
    #[schema(min_length = 1, max_length = 500, example = "the template is corrected")]
    reason: String,
    /// Who decides; `api` unless said.
    #[schema(min_length = 1, max_length = 500, example = "ann")]
    by: Option<String>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// Holds a run: no attempt begins until it is resumed. It need not exist yet.
#[utoipa::path(post, path = "/api/v1/runs/{period}/hold", tag = "runs", request_body = RunBody,
    params(("period" = String, Path, example = "2026-W49")), responses(
    (status = 200, body = RunAnswer),
))]
pub(super) async fn hold(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(period): Named<Period>,
    Given(body): Given<RunBody>,
) -> Result<Json<RunAnswer>, Problem> {
    about_run(&desk, &caller, period, &body, RunDecision::Hold).await
}

/// Lets a held run go on.
#[utoipa::path(post, path = "/api/v1/runs/{period}/resume", tag = "runs", request_body = RunBody,
    params(("period" = String, Path, example = "2026-W49")), responses(
    (status = 200, body = RunAnswer),
    (status = 404, body = Problem, content_type = "application/problem+json",
        description = "there is no such run"),
))]
pub(super) async fn resume(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(period): Named<Period>,
    Given(body): Given<RunBody>,
) -> Result<Json<RunAnswer>, Problem> {
    about_run(&desk, &caller, period, &body, RunDecision::Resume).await
}

/// Ends a run: whatever is certainly not sent yet never will be.
#[utoipa::path(post, path = "/api/v1/runs/{period}/cancel", tag = "runs", request_body = RunBody,
    params(("period" = String, Path, example = "2026-W49")), responses(
    (status = 200, body = RunAnswer),
    (status = 404, body = Problem, content_type = "application/problem+json",
        description = "there is no such run"),
))]
pub(super) async fn cancel(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(period): Named<Period>,
    Given(body): Given<RunBody>,
) -> Result<Json<RunAnswer>, Problem> {
    about_run(&desk, &caller, period, &body, RunDecision::Cancel).await
}

async fn about_run(
    desk: &Shared,
    caller: &Caller,
    period: Period,
    body: &RunBody,
    decision: RunDecision,
) -> Result<Json<RunAnswer>, Problem> {
    let decider = decider(caller, body.by.as_deref(), &body.reason, body.dry_run)?;
    Ok(Json(decisions::about_run(desk, period, decision, decider.as_ref()).await?))
}

/// Says what became of unknown deliveries. 409 where every key is refused.
#[utoipa::path(post, path = "/api/v1/unknown/resolve", tag = "operations",
    request_body = ResolveBody, responses(
    (status = 200, body = KeysAnswer),
    (status = 409, body = Problem, content_type = "application/problem+json",
        description = "keys are refused, and named"),
))]
pub(super) async fn resolve(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Given(body): Given<ResolveBody>,
) -> Result<Json<KeysAnswer>, Problem> {
    let decider = decider(&caller, body.by.as_deref(), &body.reason, body.dry_run)?;
    let keys = keys_in_doubt(&desk, &body.keys)?;
    let (verdict, attempt) = (body.verdict, body.attempt);
    let answer = decisions::resolve(&desk, &keys, verdict, attempt, decider.as_ref()).await?;
    if answer.results.iter().all(|one| one.result == Came::Refused) {
        let refused = answer.results.into_iter();
        let refused = refused.map(|one| RefusedKey { key: one.key, why: one.says }).collect();
        return Err(conflict("nothing is recorded, because every key is refused", refused));
    }
    Ok(Json(answer))
}

/// Sends dead letters again, all of them or none: 409 where any key is refused.
#[utoipa::path(post, path = "/api/v1/dead-letters/replay", tag = "operations",
    request_body = ReplayBody, responses(
    (status = 200, body = KeysAnswer),
    (status = 409, body = Problem, content_type = "application/problem+json",
        description = "keys are refused, and named"),
))]
pub(super) async fn replay(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Given(body): Given<ReplayBody>,
) -> Result<Json<KeysAnswer>, Problem> {
    let decider = decider(&caller, body.by.as_deref(), &body.reason, body.dry_run)?;
    let keys = keys_to_replay(&desk, &body.keys, Some(body.period))?;
    Ok(Json(decisions::replay(&desk, &keys, body.refreeze, decider.as_ref()).await?))
}

/// Who decides and why; `None` where it is only asked what would be done.
fn decider(
    caller: &Caller,
    by: Option<&str>,
    reason: &str,
    dry_run: bool,
) -> Result<Option<Decider>, Problem> {
    let decider = Decider::new(by.unwrap_or(&caller.name), reason)?;
    Ok((!dry_run).then_some(decider))
}
