//! What the API decides: the same as the commands, with the same words.

use super::extract::{Given, Named};
use crate::cli::{self, UsageError, values};
use crate::decide::resolve::{Fate, done, intended};
use crate::decide::run::{Outcome, Plan, RunDecision};
use crate::decide::{replay as replays, resolve as verdicts};
use crate::http::access::Caller;
use crate::http::desk::{Shared, failed};
use crate::http::problem::{Problem, RefusedKey};
use crate::keys;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use digest_activities::ledger::Actor;
use digest_workflows::operation::{self, OperationKey, Period, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A decision about a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// Why, in your words; without an address.
    reason: String,
    /// Who decides; `api` unless said.
    by: Option<String>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Came {
    /// It is done.
    Done,
    /// It would be done.
    Would,
    /// It was so already.
    Already,
    /// It is not done.
    Refused,
}

/// What a decision about a run came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunAnswer {
    /// The id of the run's workflow.
    run: String,
    /// What it came to.
    result: Came,
    /// In a sentence.
    says: String,
}

/// A verdict about unknown deliveries.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    /// Operation keys, or Message-IDs of their mails; at most `[replay] max_keys`.
    keys: Vec<String>,
    /// `delivered`, `not_delivered` or `abandon`.
    #[schema(value_type = String, example = "delivered")]
    verdict: Verdict,
    /// With one key: the attempt that is meant. Refused if a newer one was handed over since.
    attempt: Option<u32>,
    /// Why, in your words; without an address.
    reason: String,
    /// Who decides; `api` unless said.
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
    #[schema(value_type = String, example = "2026-W49")]
    period: Period,
    /// Operation keys, or Message-IDs of their mails; at most `[replay] max_keys`.
    keys: Vec<String>,
    /// Render from today's template and source instead of sending the frozen bytes.
    #[serde(default)]
    refreeze: bool,
    /// Why, in your words; without an address.
    reason: String,
    /// Who decides; `api` unless said.
    by: Option<String>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// What decisions about operations came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeysAnswer {
    /// Each key, in the order given, once.
    results: Vec<KeyAnswer>,
    /// Why the run is held, if it is: nothing is sent before it is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_because: Option<String>,
}

/// What a decision about one operation came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyAnswer {
    /// The key.
    key: String,
    /// What it came to.
    result: Came,
    /// When a verdict is acted on, if not at once; evidence until then wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    acts_at: Option<Timestamp>,
    /// In words.
    says: String,
}

/// Holds a run: no attempt begins until it is resumed. It need not exist yet.
#[utoipa::path(post, path = "/api/v1/runs/{period}/hold", tag = "runs", request_body = RunBody,
    params(("period" = String, Path, example = "2026-W49")), responses(
    (status = 200, body = RunAnswer),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
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
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
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
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
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
    let (by, reason) = who_and_why(caller, body.by.as_deref(), &body.reason)?;
    let (ledger, campaign) = (&desk.ledger, desk.campaign());
    let (result, says) = if body.dry_run {
        match decision.plan(ledger, campaign, period).await? {
            Plan::Would(says) => (Came::Would, says),
            Plan::Nothing(says) => (Came::Already, says),
        }
    } else {
        let actor = Actor { by: &by, reason: Some(&reason) };
        match decision.take(ledger, campaign, period, &desk.rules, actor).await? {
            Outcome::Done(says) => {
                desk.tell_run(period);
                (Came::Done, says)
            }
            Outcome::Nothing(says) => (Came::Already, says),
        }
    };
    let run = digest_workflows::run_id(campaign, period);
    Ok(Json(RunAnswer { run, result, says }))
}

/// Says what became of unknown deliveries. 409 where every key is refused.
#[utoipa::path(post, path = "/api/v1/unknown/resolve", tag = "operations",
    request_body = ResolveBody, responses(
    (status = 200, body = KeysAnswer),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resolve(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Given(body): Given<ResolveBody>,
) -> Result<Json<KeysAnswer>, Problem> {
    let (by, reason) = who_and_why(&caller, body.by.as_deref(), &body.reason)?;
    let keys = keys_of(&desk, &body.keys, None)?;
    if body.attempt.is_some() && keys.len() > 1 {
        return Err(unusable("attempt: it goes with one key; leave it out, or split the request"));
    }
    let (verdict, rules) = (body.verdict, &desk.rules);
    let planned = verdicts::plan(&desk.ledger, &keys, verdict, body.attempt, rules).await?;
    let actor = Actor { by: &by, reason: Some(&reason) };
    let mut results = Vec::new();
    let mut told = Vec::new();
    for plan in planned {
        let (result, acts_at, says) = match plan.fate {
            Fate::Recorded(_, at) if body.dry_run => {
                (Came::Would, at, intended(&plan.fate, verdict))
            }
            Fate::Recorded(attempt, _) => {
                let recorded =
                    verdicts::record(&desk.ledger, &plan.key, verdict, attempt, rules, actor);
                let (fate, state) = recorded.await?;
                let (came, at) = match fate {
                    Fate::Recorded(_, at) => (Came::Done, at),
                    Fate::Already => (Came::Already, None),
                    Fate::Refused(_) => (Came::Refused, None),
                };
                if came != Came::Refused {
                    told.push((plan.key.clone(), state));
                }
                (came, at, done(&fate, state))
            }
            Fate::Already => (Came::Already, None, intended(&plan.fate, verdict)),
            Fate::Refused(_) => (Came::Refused, None, intended(&plan.fate, verdict)),
        };
        results.push(KeyAnswer { key: plan.key.to_string(), result, acts_at, says });
    }
    desk.wake(told);
    if results.iter().all(|result| result.result == Came::Refused) {
        return Err(nothing_done("nothing was recorded, because every key is refused", results));
    }
    Ok(Json(KeysAnswer { results, held_because: None }))
}

/// Sends dead letters again, all of them or none: 409 where any key is refused.
#[utoipa::path(post, path = "/api/v1/dead-letters/replay", tag = "operations",
    request_body = ReplayBody, responses(
    (status = 200, body = KeysAnswer),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replay(
    State(desk): State<Shared>,
    Extension(caller): Extension<Caller>,
    Given(body): Given<ReplayBody>,
) -> Result<Json<KeysAnswer>, Problem> {
    let (by, reason) = who_and_why(&caller, body.by.as_deref(), &body.reason)?;
    let keys = keys_of(&desk, &body.keys, Some(body.period))?;
    let anew = body.refreeze.then(|| desk.anew()).transpose()?;
    let planned =
        replays::plan(&desk.ledger, &keys, anew.as_ref()).await.map_err(|error| failed(&error))?;
    let answer = |result: Came| {
        planned.iter().map(move |plan| KeyAnswer {
            key: plan.key.to_string(),
            result: if plan.plan.is_ok() { result } else { Came::Refused },
            acts_at: None,
            says: plan.intended(),
        })
    };
    let Some(letters) = replays::letters(&planned) else {
        let results = answer(Came::Would).filter(|one| one.result == Came::Refused).collect();
        return Err(nothing_done("nothing was replayed, because not every key can be", results));
    };
    let held_because = replays::held(&planned);
    if body.dry_run {
        return Ok(Json(KeysAnswer { results: answer(Came::Would).collect(), held_because }));
    }
    let actor = Actor { by: &by, reason: Some(&reason) };
    if let Err(refused) = replays::replay(&desk.ledger, &letters, &desk.rules, actor).await? {
        let refused =
            refused.into_iter().map(|(key, why)| RefusedKey::new(&key, why.to_string())).collect();
        let detail = "nothing was replayed, because not every key can be any more";
        return Err(Problem::new(StatusCode::CONFLICT, detail).with_refused(refused));
    }
    desk.wake(letters.into_iter().map(|one| (one.key, operation::State::Sending)).collect());
    Ok(Json(KeysAnswer { results: answer(Came::Done).collect(), held_because }))
}

fn nothing_done(detail: &str, results: Vec<KeyAnswer>) -> Problem {
    let refused = results.into_iter().map(|one| RefusedKey { key: one.key, why: one.says });
    Problem::new(StatusCode::CONFLICT, detail).with_refused(refused.collect())
}

/// The keys of a request: at least one, no more than one command may decide about, and all of this
/// campaign (and of `period`).
fn keys_of(
    desk: &Shared,
    texts: &[String],
    period: Option<Period>,
) -> Result<Vec<OperationKey>, Problem> {
    let parsed: Result<Vec<_>, _> = texts.iter().map(|text| cli::key(text)).collect();
    // What is no key may be anything, so it is not quoted.
    let parsed = parsed.map_err(|_| {
        unusable(
            "keys: one of them is neither an operation key nor the Message-ID of one; a key looks \
             like digest:2026-W49:customer-1842",
        )
    })?;
    let usage = |error: &dyn std::fmt::Display| unusable(error.to_string());
    let keys = keys::gather(&parsed, None, desk.config.replay.max_keys).map_err(|e| usage(&e))?;
    keys::must_be_of(&keys, desk.campaign(), period).map_err(|UsageError(text)| unusable(text))?;
    Ok(keys)
}

/// Who decides and why, as the audit takes it.
fn who_and_why(
    caller: &Caller,
    by: Option<&str>,
    reason: &str,
) -> Result<(String, String), Problem> {
    let by = values::words(by.unwrap_or(&caller.name));
    let by = by.map_err(|why| unusable(format!("by: {why}")))?;
    let reason = values::words(reason).map_err(|why| unusable(format!("reason: {why}")))?;
    Ok((by, reason))
}

fn unusable(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}
