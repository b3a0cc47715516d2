//! What the API reads.

use super::extract::{Asked, Named};
use crate::http::decisions::{after_of, key_of, unusable};
use crate::http::desk::Shared;
use crate::http::problem::Problem;
use crate::links;
use axum::Json;
use axum::extract::State;
use digest_activities::ledger::{Listing, RunListing, RunStatus, Shown};
use digest_workflows::operation::{self, FailureClass, OperationKey, Period};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How many operations a page has, unless asked otherwise; and at most.
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 500;
/// How many runs a page has; and at most.
const RUNS: u32 = 12;
const RUNS_MAX: u32 = 60;

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsQuery {
    /// Only runs before this period: the `next` of the page before.
    #[param(value_type = Option<String>, pattern = "^[0-9]{4}-W[0-9]{2}$", example = "2026-W42")]
    before: Option<Period>,
    /// How many, at most 60; 12 unless said.
    #[param(minimum = 1, maximum = 60)]
    limit: Option<u32>,
}

/// Which operations.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only those of this period.
    #[param(value_type = Option<String>, pattern = "^[0-9]{4}-W[0-9]{2}$", example = "2026-W49")]
    period: Option<Period>,
    /// Only those after this key: the `next` of the page before.
    after: Option<String>,
    /// How many, at most 500; 100 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Which dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadQuery {
    /// Only those of this period.
    #[param(value_type = Option<String>, pattern = "^[0-9]{4}-W[0-9]{2}$", example = "2026-W49")]
    period: Option<Period>,
    /// Only those of this failure class.
    #[param(value_type = Option<String>, example = "recipient")]
    class: Option<FailureClass>,
    /// Only those after this key: the `next` of the page before.
    after: Option<String>,
    /// How many, at most 500; 100 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Whose operations.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CustomerQuery {
    /// The customer, by the id that the source has.
    #[param(example = "customer-1842")]
    customer: String,
}

/// Every operation of one customer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OfCustomer {
    /// The operations, the oldest period first.
    operations: Vec<Shown>,
}

/// The runs, the newest first, with how they go.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(RunsQuery), responses(
    (status = 200, body = RunListing),
    (status = 422, body = Problem, content_type = "application/problem+json",
        description = "the limit is none"),
))]
pub(super) async fn runs(
    State(desk): State<Shared>,
    Asked(asked): Asked<RunsQuery>,
) -> Result<Json<RunListing>, Problem> {
    let limit = limit_of(asked.limit, RUNS, RUNS_MAX)?;
    Ok(Json(desk.ledger.runs(desk.campaign(), asked.before, limit).await?))
}

/// One run in numbers, as `digestd status --json` has it.
#[utoipa::path(get, path = "/api/v1/runs/{period}", tag = "runs",
    params(("period" = String, Path, example = "2026-W49")), responses(
    (status = 200, body = RunStatus),
    (status = 404, body = Problem, content_type = "application/problem+json",
        description = "there is none"),
))]
pub(super) async fn run(
    State(desk): State<Shared>,
    Named(period): Named<Period>,
) -> Result<Json<RunStatus>, Problem> {
    Ok(Json(desk.ledger.status(desk.campaign(), period).await?))
}

/// What may or may not have been delivered, as `digestd unknown --json` has it.
#[utoipa::path(get, path = "/api/v1/unknown", tag = "operations", params(ListQuery), responses(
    (status = 200, body = Listing),
    (status = 422, body = Problem, content_type = "application/problem+json",
        description = "the key, or the limit, is none"),
))]
pub(super) async fn unknown(
    State(desk): State<Shared>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<Listing>, Problem> {
    let limit = limit_of(asked.limit, PAGE, PAGE_MAX)?;
    let after = after_of(asked.after.as_deref())?;
    let (unknown, after) = (operation::State::Unknown, after.as_deref());
    let page = desk.ledger.list(desk.campaign(), unknown, asked.period, after, limit).await?;
    Ok(Json(page))
}

/// What ended without being sent, as `digestd dead-letters --json` has it.
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "operations", params(DeadQuery), responses(
    (status = 200, body = Listing),
    (status = 422, body = Problem, content_type = "application/problem+json",
        description = "the key, or the limit, is none"),
))]
pub(super) async fn dead_letters(
    State(desk): State<Shared>,
    Asked(asked): Asked<DeadQuery>,
) -> Result<Json<Listing>, Problem> {
    let limit = limit_of(asked.limit, PAGE, PAGE_MAX)?;
    let after = after_of(asked.after.as_deref())?;
    let (campaign, class, after) = (desk.campaign(), asked.class, after.as_deref());
    Ok(Json(desk.ledger.dead_letters(campaign, asked.period, class, after, limit).await?))
}

/// Every operation of one customer, canaries with their data among them, as `digestd show --customer ID --json` has it.
#[utoipa::path(get, path = "/api/v1/operations", tag = "operations", params(CustomerQuery), responses(
    (status = 200, body = OfCustomer),
))]
pub(super) async fn operations(
    State(desk): State<Shared>,
    Asked(asked): Asked<CustomerQuery>,
) -> Result<Json<OfCustomer>, Problem> {
    let mut operations = Vec::new();
    for key in desk.keys_of(&asked.customer).await? {
        operations.push(show(&desk, &key).await?);
    }
    Ok(Json(OfCustomer { operations }))
}

/// One operation from its selection to its end, as `digestd show --json` has it.
#[utoipa::path(get, path = "/api/v1/operations/{key}", tag = "operations",
    params(("key" = String, Path, example = "digest:2026-W49:customer-1842",
        description = "the operation key, or the Message-ID of its mail")), responses(
    (status = 200, body = Shown),
    (status = 404, body = Problem, content_type = "application/problem+json",
        description = "there is none"),
    (status = 422, body = Problem, content_type = "application/problem+json",
        description = "the key is none"),
))]
pub(super) async fn operation(
    State(desk): State<Shared>,
    Named(key): Named<String>,
) -> Result<Json<Shown>, Problem> {
    Ok(Json(show(&desk, &key_of("the path", &key)?).await?))
}

/// How many a page has.
fn limit_of(asked: Option<u32>, usual: u32, max: u32) -> Result<u32, Problem> {
    let limit = asked.unwrap_or(usual);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    Err(unusable(format!("limit: {limit} is not between 1 and {max}; leave it out for {usual}")))
}

pub(super) async fn show(desk: &Shared, key: &OperationKey) -> Result<Shown, Problem> {
    let mut shown = desk.ledger.show(key).await?;
    shown.ui_url = Some(links::of_operation(&desk.config, key));
    Ok(shown)
}
