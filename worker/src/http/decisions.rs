//! Decisions as API and console take them: without an actor they only tell what they would do.

use super::desk::{Desk, failed};
use super::problem::{Problem, RefusedKey};
use crate::cli::{self, UsageError, values};
use crate::decide::resolve::{Fate, done, intended};
use crate::decide::run::{Outcome, Plan, RunDecision};
use crate::decide::{replay as replays, resolve as verdicts};
use crate::keys;
use axum::http::StatusCode;
use digest_activities::ledger::Actor;
use digest_workflows::operation::{OperationKey, Period, State, Verdict};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

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
    pub(super) run: String,
    /// What it came to.
    pub(super) result: Came,
    /// In a sentence.
    pub(super) says: String,
}

/// What decisions about operations came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeysAnswer {
    /// Each key, in the order given, once.
    pub(super) results: Vec<KeyAnswer>,
    /// Why the run is held, if it is: nothing is sent before it is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_because: Option<String>,
}

/// What a decision about one operation came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyAnswer {
    /// The key.
    pub(super) key: String,
    /// What it came to.
    pub(super) result: Came,
    /// When a verdict is acted on, if not at once; evidence until then wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) acts_at: Option<Timestamp>,
    /// In words.
    pub(super) says: String,
}

/// Who decides, and why, as the audit takes it.
#[derive(Debug)]
pub(super) struct Decider {
    by: String,
    reason: String,
}

impl Decider {
    /// # Errors
    /// A problem with either text.
    pub(super) fn new(by: &str, reason: &str) -> Result<Self, Problem> {
        let by = values::words(by).map_err(|why| unusable(format!("by: {why}")))?;
        let reason = values::words(reason).map_err(|why| unusable(format!("reason: {why}")))?;
        Ok(Self { by, reason })
    }

    pub(super) fn actor(&self) -> Actor<'_> {
        Actor { by: &self.by, reason: Some(&self.reason) }
    }
}

/// Decides about the run of `period`.
///
/// # Errors
/// Those of the ledger.
pub(super) async fn about_run(
    desk: &Desk,
    period: Period,
    decision: RunDecision,
    decider: Option<&Decider>,
) -> Result<RunAnswer, Problem> {
    let (ledger, campaign) = (&desk.ledger, desk.campaign());
    let (result, says) = match decider {
        None => match decision.plan(ledger, campaign, period).await? {
            Plan::Would(says) => (Came::Would, says),
            Plan::Nothing(says) => (Came::Already, says),
        },
        Some(decider) => {
            let taken = decision.take(ledger, campaign, period, &desk.rules, decider.actor());
            match taken.await? {
                Outcome::Done(says) => {
                    desk.tell_run(period);
                    (Came::Done, says)
                }
                Outcome::Nothing(says) => (Came::Already, says),
            }
        }
    };
    Ok(RunAnswer { run: digest_workflows::run_id(campaign, period), result, says })
}

/// Says what became of `keys`; the answer has what each came to. `attempt` goes with one key.
///
/// # Errors
/// Those of the ledger, or that an attempt goes with several keys.
pub(super) async fn resolve(
    desk: &Desk,
    keys: &[OperationKey],
    verdict: Verdict,
    attempt: Option<u32>,
    decider: Option<&Decider>,
) -> Result<KeysAnswer, Problem> {
    if attempt.is_some() && keys.len() > 1 {
        return Err(unusable("attempt: it goes with one key; leave it out, or split the request"));
    }
    let planned = verdicts::plan(&desk.ledger, keys, verdict, attempt, &desk.rules).await?;
    let mut results = Vec::new();
    let mut told = Vec::new();
    for plan in planned {
        let (result, acts_at, says) = match (&plan.fate, decider) {
            (Fate::Recorded(_, at), None) => (Came::Would, *at, intended(&plan.fate, verdict)),
            (Fate::Recorded(attempt, _), Some(decider)) => {
                let (ledger, actor) = (&desk.ledger, decider.actor());
                let recorded =
                    verdicts::record(ledger, &plan.key, verdict, *attempt, &desk.rules, actor);
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
            (Fate::Already, _) => (Came::Already, None, intended(&plan.fate, verdict)),
            (Fate::Refused(_), _) => (Came::Refused, None, intended(&plan.fate, verdict)),
        };
        results.push(KeyAnswer { key: plan.key.to_string(), result, acts_at, says });
    }
    desk.wake(told);
    Ok(KeysAnswer { results, held_because: None })
}

/// Replays `keys`, all of them or none.
///
/// # Errors
/// A conflict that names the refused keys, where any is; those of ledger, source and templates.
pub(super) async fn replay(
    desk: &Desk,
    keys: &[OperationKey],
    refreeze: bool,
    decider: Option<&Decider>,
) -> Result<KeysAnswer, Problem> {
    let anew = refreeze.then(|| desk.anew()).transpose()?;
    let planned = replays::plan(&desk.ledger, keys, anew.as_ref()).await;
    let planned = planned.map_err(|error| failed(&error))?;
    let Some(letters) = replays::letters(&planned) else {
        let refused = planned.iter().filter_map(|one| {
            one.plan.as_ref().err().map(|why| RefusedKey::new(&one.key, why.clone()))
        });
        let detail = "nothing is replayed, because not every key can be";
        return Err(conflict(detail, refused.collect()));
    };
    if let Some(decider) = decider {
        let replayed =
            replays::replay(&desk.ledger, &letters, &desk.rules, decider.actor()).await?;
        if let Err(refused) = replayed {
            let refused =
                refused.into_iter().map(|(key, why)| RefusedKey::new(&key, why.to_string()));
            let detail = "nothing was replayed, because not every key can be any more";
            return Err(conflict(detail, refused.collect()));
        }
        desk.wake(letters.into_iter().map(|letter| (letter.key, State::Sending)).collect());
    }
    let results = planned.iter().map(|one| KeyAnswer {
        key: one.key.to_string(),
        result: if decider.is_some() { Came::Done } else { Came::Would },
        acts_at: None,
        says: one.intended(),
    });
    Ok(KeysAnswer { results: results.collect(), held_because: replays::held(&planned) })
}

/// The keys of a request that says what became of them.
///
/// # Errors
/// A problem that names what is wrong.
pub(super) fn keys_in_doubt(desk: &Desk, texts: &[String]) -> Result<Vec<OperationKey>, Problem> {
    let keys = gathered(desk, texts)?;
    keys::may_be_resolved(&keys, desk.campaign()).map_err(|UsageError(text)| unusable(text))?;
    Ok(keys)
}

/// The keys of a request that sends them again: all of this campaign (and of `period`).
///
/// # Errors
/// A problem that names what is wrong.
pub(super) fn keys_to_replay(
    desk: &Desk,
    texts: &[String],
    period: Option<Period>,
) -> Result<Vec<OperationKey>, Problem> {
    let keys = gathered(desk, texts)?;
    keys::must_be_of(&keys, desk.campaign(), period).map_err(|UsageError(text)| unusable(text))?;
    Ok(keys)
}

/// At least one key, and no more than one command may decide about.
fn gathered(desk: &Desk, texts: &[String]) -> Result<Vec<OperationKey>, Problem> {
    let parsed: Result<Vec<_>, _> = texts.iter().map(|text| key_of("keys", text)).collect();
    let keys = keys::gather(&parsed?, None, desk.config.replay.max_keys);
    keys.map_err(|error| unusable(error.to_string()))
}

/// The key, or Message-ID, that the field `name` of a request holds.
///
/// # Errors
/// A problem; what is no key may be anything, so it is not quoted.
pub(super) fn key_of(name: &str, text: &str) -> Result<OperationKey, Problem> {
    cli::key(text).map_err(|_| {
        unusable(format!(
            "{name}: this is neither an operation key nor the Message-ID of one; a key looks like \
             digest:2026-W49:customer-1842"
        ))
    })
}

/// The key that a page of a list begins after.
///
/// # Errors
/// A problem, where it is none.
pub(super) fn after_of(text: Option<&str>) -> Result<Option<String>, Problem> {
    let key = text.map(|text| key_of("after", text)).transpose()?;
    Ok(key.map(|key| key.to_string()))
}

/// A problem with what a request says.
pub(super) fn unusable(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// A problem with what is, about these keys.
pub(super) fn conflict(detail: &str, refused: Vec<RefusedKey>) -> Problem {
    Problem::new(StatusCode::CONFLICT, detail).with_refused(refused)
}
