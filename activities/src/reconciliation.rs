//! Getting a definite answer for an unknown: from the ledger, then the provider, or from somebody who
//! tells.

use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::{Actor, LedgerError, Recorded};
use crate::message::FrozenMessage;
use crate::provider::Found;
use digest_workflows::activities::{Evidence, OperationInput, Progress, RecordInput};
use digest_workflows::operation::{Event, Finding, Operation, State};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// How much earlier than a hand-over its record may seem to be made, and another's later than it can
/// be, by clocks that differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Asks the ledger what time has settled and, where a look-up is due, the provider.
///
/// # Errors
/// [`GateError`]; nothing is concluded from it.
pub async fn reconcile(parts: &Parts, input: &OperationInput) -> Result<Progress, GateError> {
    parts.ledger.must_be(&input.ledger)?;
    let recorded = note(parts, input, &Event::TimePassed).await?;
    let (operation, now) = (&recorded.answer.operation, recorded.answer.moment.now);
    if operation.state != State::Unknown {
        return Ok(progress(recorded));
    }
    if !serves_doubts(parts, operation) {
        return Ok(progress(note(parts, input, &Event::ProviderGone).await?));
    }
    if !operation.look_up_is_due(now) {
        return Ok(progress(recorded));
    }
    let finding = look_up(parts, input, operation.first_intent_at.unwrap_or(now)).await?;
    crash::point("looked-up");
    let event = Event::LookedUp { finding, asked_at: now, random: input.random };
    Ok(progress(note(parts, input, &event).await?))
}

/// Records a verdict or evidence.
///
/// # Errors
/// [`GateError`]; the workflow keeps it and has it recorded later.
pub async fn record(parts: &Parts, input: &RecordInput) -> Result<Progress, GateError> {
    parts.ledger.must_be(&input.operation.ledger)?;
    let actor = Actor { by: &input.by, reason: input.reason.as_deref() };
    let operation = &input.operation;
    let (key, event, rules) = (&operation.key, &input.event, &operation.rules);
    let recorded = if matches!(event, Event::Judged { .. }) {
        parts.ledger.record(key, event, rules, actor, None).await?
    } else {
        let proof = input.proof.clone().unwrap_or_default();
        let evidence = Evidence { event: event.clone(), proof };
        parts.ledger.record_evidence(key, &evidence, rules, actor).await?
    };
    // What comes by this way and finds the operation unknown has come late.
    let late = recorded.change.from == State::Unknown;
    parts.metrics.recorded(event, &recorded, late);
    Ok(progress(recorded))
}

/// Whether the provider of this configuration is the one that every doubt was handed to. A doubt is
/// replayed and looked up only there.
pub(crate) fn serves_doubts(parts: &Parts, operation: &Operation) -> bool {
    let ours = parts.provider.provider_ref();
    operation.doubts.iter().all(|doubt| doubt.provider == ours)
}

/// Asks the provider about the operation, first handed over at `since`.
async fn look_up(
    parts: &Parts,
    input: &OperationInput,
    since: Timestamp,
) -> Result<Finding, GateError> {
    let lookup = parts.provider.contract().lookup;
    let message =
        if lookup.is_by_content() { parts.ledger.message(&input.key).await? } else { None };
    let limit = Duration::try_from(input.rules.timeouts.timeout).unwrap_or(Duration::from_secs(30));
    let asked = parts.provider.look_up(&input.key, message.as_ref(), since);
    let finding = match tokio::time::timeout(limit, asked).await {
        Ok(Found::Accepted { message_id }) => Finding::Accepted { message_id },
        Ok(Found::Refused(class)) => Finding::Refused(class),
        Ok(Found::Miss) => Finding::Miss,
        Ok(Found::Unavailable(_)) | Err(_) => Finding::Unavailable,
    };
    match (&finding, message) {
        (Finding::Accepted { .. } | Finding::Refused(_), Some(message))
            if may_be_anothers(parts, input, &message, since).await? =>
        {
            tracing::info!(
                key = %input.key,
                "a record was found that another operation with the same content may have made, so it counts for nothing"
            );
            Ok(Finding::Unavailable)
        }
        _ => Ok(finding),
    }
}

/// Whether what was found by the content of `message` can have been made by another operation: its
/// record has no key that tells. Asked after the provider, since whoever made a record that it has
/// found has put the intent on record before.
async fn may_be_anothers(
    parts: &Parts,
    input: &OperationInput,
    message: &FrozenMessage,
    since: Timestamp,
) -> Result<bool, LedgerError> {
    let since = since.saturating_sub(CLOCKS_DIFFER).unwrap_or(since);
    parts.ledger.has_same_content(&input.key, &message.content_hash, since).await
}

async fn note(parts: &Parts, input: &OperationInput, event: &Event) -> Result<Recorded, GateError> {
    let actor = Actor::part("reconciliation");
    let recorded = parts.ledger.record(&input.key, event, &input.rules, actor, None).await?;
    parts.metrics.recorded(event, &recorded, false);
    Ok(recorded)
}

pub(crate) fn progress(recorded: Recorded) -> Progress {
    Progress {
        operation: recorded.answer.operation,
        now: recorded.answer.moment.now,
        pause: None,
        uncommitted: None,
        note: recorded.change.note,
    }
}
