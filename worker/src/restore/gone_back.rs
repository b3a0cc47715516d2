//! Whether a ledger has gone back: has the engine seen more of it than it holds?

use super::{AT_ONCE, Known, decode, history};
use anyhow::Context;
use digest_activities::ledger::Ledger;
use digest_workflows::activities::{LedgerRef, RunPlan, Standing};
use digest_workflows::customer::CustomerInput;
use digest_workflows::operation::{OperationKey, Period, State};
use digest_workflows::run::RunInput;
use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use temporalio_client::{Client, WorkflowListOptions};
use temporalio_common::protos::temporal::api::history::v1::{
    HistoryEvent, history_event::Attributes,
};

/// At most this many operations are compared one by one, so that a worker starts in bounded time.
const COMPARED_MAX: usize = 2_000;
/// How much the clocks of engine and ledger may differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Holds everything if any run of `campaign` has seen the ledger further than it is now, or any of
/// its operations an attempt that the ledger does not know; returns whether that is so. A run that
/// the ledger does not know any more is held too, so that nobody starts it again unawares.
///
/// # Errors
/// When the ledger or the engine does not answer: nothing may be sent then.
pub async fn hold_if_gone_back(
    ledger: &Ledger,
    client: &Client,
    campaign: &str,
) -> anyhow::Result<bool> {
    let query = format!("WorkflowType = 'DigestRun' AND DigestCampaign = '{campaign}'");
    let executions: Vec<(String, String)> = client
        .list_workflows(query, WorkflowListOptions::default())
        .map(|found| found.map(|found| (found.id().to_owned(), found.run_id().to_owned())))
        .try_collect()
        .await
        .context("the engine does not list the campaign's runs")?;
    let noted: Vec<(Option<Period>, i64)> = futures::stream::iter(executions)
        .map(|(id, run)| async move {
            let period = id.rsplit_once(':').and_then(|(_, period)| Period::parse(period).ok());
            let noted = Noted::of(history(client, &id, run).await?);
            let ours = noted.ledger.as_ref() == Some(ledger.identity());
            anyhow::Ok((period, if ours { noted.counter } else { 0 }))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let counter = ledger.counter().await?;
    let mut periods = BTreeSet::new();
    if noted.iter().any(|(_, noted)| *noted > counter) {
        periods.extend(noted.iter().filter(|(_, n)| *n > 0).filter_map(|(period, _)| *period));
    } else {
        // A run looks at the counter only now and then.
        periods.extend(with_lost_attempts(ledger, client, campaign).await?);
    }
    for period in &periods {
        ledger.hold_gone_back(campaign, *period).await?;
    }
    Ok(!periods.is_empty())
}

/// The periods of the operations of which the engine has seen an attempt that the ledger does not
/// know: among those that are open, and those that ended after the ledger's newest decision.
async fn with_lost_attempts(
    ledger: &Ledger,
    client: &Client,
    campaign: &str,
) -> anyhow::Result<BTreeSet<Period>> {
    let since = ledger.newest_decision().await?.unwrap_or(Timestamp::UNIX_EPOCH) - CLOCKS_DIFFER;
    let query = format!(
        "WorkflowType = 'CustomerDigest' AND DigestCampaign = '{campaign}' AND \
         (ExecutionStatus = 'Running' OR CloseTime > '{since:.0}')"
    );
    client
        .list_workflows(query, WorkflowListOptions::default())
        .take(COMPARED_MAX)
        .map(|found| {
            let found = found.context("the engine does not list the campaign's operations");
            async move {
                let found = found?;
                has_lost_attempt(ledger, client, found.id(), found.run_id()).await
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_filter_map(|period| std::future::ready(Ok(period)))
        .try_collect()
        .await
}

/// The operation's period if the engine has seen more attempts than the ledger holds. Only of one
/// that could be sent the history is read.
async fn has_lost_attempt(
    ledger: &Ledger,
    client: &Client,
    id: &str,
    run: &str,
) -> anyhow::Result<Option<Period>> {
    let Ok(key) = OperationKey::parse(id) else { return Ok(None) };
    let operation = ledger.find(&key).await?;
    let may_be_sent = operation.as_ref().is_none_or(|operation| {
        matches!(operation.state, State::Selected | State::Retrying | State::Dead)
            || operation.doubts.iter().any(|doubt| doubt.batch.is_some())
    });
    if !may_be_sent {
        return Ok(None);
    }
    let mut known = Known::default();
    let mut of_this_ledger = false;
    for event in history(client, id, run.to_owned()).await? {
        if let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) =
            &event.attributes
        {
            let input = decode::<CustomerInput>(started.input.clone());
            of_this_ledger = input.is_some_and(|input| input.ledger == *ledger.identity());
        }
        known.learn(event);
    }
    let held = operation.map_or(0, |operation| operation.attempts);
    Ok((of_this_ledger && known.attempts > held).then_some(key.period()))
}

/// What one execution of a run has noted of the ledger.
#[derive(Default)]
struct Noted {
    /// Which ledger that was.
    ledger: Option<LedgerRef>,
    /// Its highest counter.
    counter: i64,
}

impl Noted {
    fn of(events: Vec<HistoryEvent>) -> Self {
        let mut noted = Self::default();
        for event in events {
            match event.attributes {
                Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => {
                    if let Some(input) = decode::<RunInput>(started.input) {
                        noted.ledger = input.plan.map(|plan| plan.ledger);
                        noted.counter = noted.counter.max(input.counter);
                    }
                }
                Some(Attributes::MarkerRecordedEventAttributes(marker)) => {
                    for payloads in marker.details.into_values() {
                        if let Some(plan) = decode::<RunPlan>(Some(payloads.clone())) {
                            noted.ledger = Some(plan.ledger);
                        } else if let Some(standing) = decode::<Standing>(Some(payloads)) {
                            noted.counter = noted.counter.max(standing.counter);
                        }
                    }
                }
                _ => {}
            }
        }
        noted
    }
}
