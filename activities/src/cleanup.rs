//! The third gate: removes the rows of exactly one operation, after its delivery is confirmed.

use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::Actor;
use crate::reconciliation::progress;
use digest_workflows::activities::{OperationInput, Progress};
use digest_workflows::operation::{Event, State};

/// Runs the source's cleanup statement for this key, then records it together with dropping the
/// stored bytes, address and rows. A canary removes nothing from the source.
///
/// A crash between the two databases repeats the statement, which is idempotent; the record is made
/// once.
///
/// # Errors
/// [`GateError`] when the ledger does not answer. A failing statement is no error: it is recorded
/// and retried by the cleanup's own policy.
pub async fn clean_up(parts: &Parts, input: &OperationInput) -> Result<Progress, GateError> {
    parts.ledger.must_be(&input.ledger)?;
    let answer = parts.ledger.operation(&input.key).await?;
    let actor = Actor::part("cleanup");
    if answer.operation.state != State::Sent {
        let (operation, now) = (answer.operation, answer.moment.now);
        return Ok(Progress { operation, now, pause: None, uncommitted: None, note: None });
    }
    let outcome = if input.key.is_canary() {
        // The rows are the customer's, whose own message is still to come.
        Ok(0)
    } else {
        let parameters = parts.parameters(&answer.run)?;
        parts.source.cleanup(&parameters, &input.key).await
    };
    crash::point("cleanup-done");
    let event = match &outcome {
        Ok(_) => Event::CleanedUp,
        Err(_) => Event::CleanupFailed { random: input.random },
    };
    let reason = outcome.err().map(|error| error.to_string());
    let actor = Actor { reason: reason.as_deref(), ..actor };
    let recorded = parts.ledger.record(&input.key, &event, &input.rules, actor, None).await?;
    parts.metrics.recorded(&event, &recorded, false);
    Ok(progress(recorded))
}
