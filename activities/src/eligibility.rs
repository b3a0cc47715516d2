//! The first gate: who is selected, frozen once; and the run around the selection.

use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::{
    Actor, ELIGIBILITY, FreezePage, FrozenData, NewRun, Run, RunState, STARTED_LATE, Selected,
};
use crate::message::Redacted;
use crate::source::{Customer, CustomerId, Data, Fault, FaultReason, Page};
use digest_workflows::activities::{
    EnqueueInput, Enqueued, RunPlan, RunStart, Standing, WatchInput,
};
use jiff::Timestamp;
use serde_json::Value;

/// How many customers one page of the freeze reads.
const FREEZE_PAGE: u32 = 500;
/// The keys of one answer stay far below the bound of 10 KB for a payload.
const KEYS_BYTES_MAX: usize = 7_000;

/// Opens the run in the ledger, or finds the one that exists.
///
/// # Errors
/// [`GateError`]; nothing was opened then, or it is found again.
pub async fn open_run(parts: &Parts, start: &RunStart) -> Result<RunPlan, GateError> {
    parts.must_serve(&start.campaign)?;
    let now = parts.ledger.now().await?;
    let (from, until) = parts.calendar.window(start.period)?;
    let new = NewRun {
        campaign: &start.campaign,
        period: start.period,
        tick: start.tick,
        // A run ahead of its tick sees what there is.
        window: (from, (until <= now).then_some(until)),
        useful_for: parts.campaign.useful_for,
    };
    crash::point("run-unrecorded");
    let run = parts.ledger.open_run(&new).await?;
    crash::point("run-recorded");
    let fresh = run.state == RunState::Freezing && run.freeze_after.is_none();
    let late = start.tick.is_some_and(|tick| now > tick + parts.campaign.late_start);
    if fresh && late && !is_answered(&run, run.selected_at) {
        hold_for(parts, start, STARTED_LATE).await?;
    }
    Ok(RunPlan {
        ledger: parts.ledger.identity().clone(),
        rules: parts.rules.clone(),
        page_size: parts.campaign.page_size,
        in_flight: parts.campaign.in_flight,
        closed: run.state == RunState::Closed,
    })
}

/// Freezes the next page of the selection; returns whether the selection is complete.
///
/// # Errors
/// [`GateError`]; nothing of the page is stored then, and the next call reads it again.
pub async fn freeze_page(parts: &Parts, start: &RunStart) -> Result<bool, GateError> {
    let Some(run) = parts.ledger.run(&start.campaign, start.period).await? else {
        return Err(GateError::NoWindow);
    };
    if run.state != RunState::Freezing {
        return Ok(run.state != RunState::Planned);
    }
    let parameters = parts.parameters(&run)?;
    if run.expected.is_none() {
        let expected = parts.source.count(&parameters).await?;
        parts.ledger.expect(&start.campaign, start.period, expected).await?;
    }
    let after = match &run.freeze_after {
        Some(text) => Some(parts.source.customer_id(&parameters, text).await?),
        None => None,
    };
    let page = parts.source.customers_page(&parameters, after.as_ref(), FREEZE_PAGE).await?;
    let done = page.next.is_none();
    let ids: Vec<CustomerId> = page.customers.iter().map(|customer| customer.id.clone()).collect();
    let mut rows = parts.source.rows_page(&parameters, &ids).await?;
    let frozen = to_freeze(page, |id| rows.remove(id).unwrap_or_else(|| Ok(Vec::new())));
    parts
        .ledger
        .freeze(&start.campaign, start.period, run.freeze_after.as_deref(), &frozen)
        .await?;
    crash::point(if done { "selection-frozen" } else { "page-frozen" });
    Ok(done)
}

fn to_freeze(
    page: Page,
    mut rows: impl FnMut(&CustomerId) -> Result<Vec<Data>, FaultReason>,
) -> FreezePage {
    let Page { customers, mut faults, next, seen } = page;
    let mut selected = Vec::new();
    for Customer { id, key, data } in customers {
        match rows(&id) {
            Ok(rows) => {
                let rows = rows.into_iter().map(Value::Object).collect();
                selected
                    .push(Selected { key, data: FrozenData { customer: data.into_inner(), rows } });
            }
            Err(reason) => {
                let customer_id = Some(Redacted::new(id.to_string()));
                faults.push(Fault { customer_id, rows: 1, reason });
            }
        }
    }
    let unkeyed = faults.iter().map(|fault| fault.rows).sum();
    let faults = faults.iter().map(fault).collect();
    let next = next.map(|id| id.to_string());
    FreezePage { selected, faults, unkeyed, seen, next }
}

/// A fault as it is stored. An id that holds an address is not.
fn fault(fault: &Fault) -> (Option<String>, String) {
    let id = fault.customer_id.as_ref().map(|id| id.reveal().clone());
    (id.filter(|id| !id.contains(['@', '\0'])), fault.reason.to_string())
}

/// Holds a finished selection that looks wrong, once: empty, under half of the run before, or
/// changed while it was read.
///
/// # Errors
/// [`GateError`]; the same call asks again.
pub async fn question_selection(parts: &Parts, start: &RunStart) -> Result<(), GateError> {
    let Some(run) = parts.ledger.run(&start.campaign, start.period).await? else {
        return Err(GateError::NoWindow);
    };
    if run.state != RunState::Frozen || is_answered(&run, run.frozen_at) {
        return Ok(());
    }
    let changed = Some(run.seen) != run.expected;
    let counted =
        if changed { parts.source.count(&parts.parameters(&run)?).await? } else { run.seen };
    let before = parts.ledger.selected_before(&start.campaign, start.period).await?;
    let because = if run.selected == 0 {
        Some("the selection is empty".to_owned())
    } else if let Some(before) = before.filter(|before| run.selected * 2 < *before) {
        Some(format!(
            "only {} customers are selected, under half of the {before} of the run before",
            run.selected
        ))
    } else if counted != run.seen {
        Some(format!(
            "the customers changed while they were read: {} rows seen, {counted} counted",
            run.seen
        ))
    } else {
        None
    };
    match because {
        Some(because) => hold_for(parts, start, &because).await,
        None => Ok(()),
    }
}

/// Whether somebody has resumed the run since `asked`, when the question came up. An earlier resume
/// answers something else.
fn is_answered(run: &Run, asked: Option<Timestamp>) -> bool {
    run.resumed_at.zip(asked).is_some_and(|(resumed, asked)| resumed >= asked)
}

async fn hold_for(parts: &Parts, start: &RunStart, because: &str) -> Result<(), GateError> {
    let actor = Actor::part(ELIGIBILITY);
    Ok(parts.ledger.hold_also(&start.campaign, start.period, because, actor).await?)
}

/// Records a part of a page as enqueued and returns its keys.
///
/// # Errors
/// [`GateError`]; the same call returns the same keys again.
pub async fn enqueue(parts: &Parts, input: &EnqueueInput) -> Result<Enqueued, GateError> {
    parts.must_serve(&input.run.campaign)?;
    parts.ledger.must_be(&input.ledger)?;
    let limit = u32::try_from(input.until.saturating_sub(input.after)).unwrap_or(u32::MAX);
    let (campaign, period) = (&input.run.campaign, input.run.period);
    let page = parts.ledger.enqueue(campaign, period, input.after, limit, KEYS_BYTES_MAX).await?;
    crash::point("page-enqueued");
    Ok(Enqueued { keys: page.keys, last: page.last })
}

/// Tells how a run stands, and closes it when everything is at rest. A ledger that has gone back
/// since the run last looked holds every run instead.
///
/// # Errors
/// [`GateError`].
pub async fn watch(parts: &Parts, input: &WatchInput) -> Result<Standing, GateError> {
    parts.must_serve(&input.run.campaign)?;
    parts.ledger.must_be(&input.ledger)?;
    let (campaign, period) = (&input.run.campaign, input.run.period);
    if parts.ledger.counter().await? < input.noted {
        parts.ledger.hold_gone_back(campaign, period).await?;
    } else {
        parts.ledger.close_run(campaign, period).await?;
    }
    standing(parts, &input.run).await
}

/// Holds a run for a person, once for each request.
///
/// # Errors
/// [`GateError`].
pub async fn hold(parts: &Parts, input: &WatchInput) -> Result<Standing, GateError> {
    parts.ledger.must_be(&input.ledger)?;
    let actor = Actor { by: &input.by, reason: Some(&input.reason) };
    let RunStart { campaign, period, .. } = &input.run;
    parts.ledger.hold_once(&input.request, campaign, *period, &input.reason, actor).await?;
    standing(parts, &input.run).await
}

/// Ends a hold for a person, once for each request.
///
/// # Errors
/// [`GateError`].
pub async fn resume(parts: &Parts, input: &WatchInput) -> Result<Standing, GateError> {
    parts.ledger.must_be(&input.ledger)?;
    let actor = Actor { by: &input.by, reason: Some(&input.reason) };
    let RunStart { campaign, period, .. } = &input.run;
    parts.ledger.resume_once(&input.request, campaign, *period, actor).await?;
    standing(parts, &input.run).await
}

/// How a run stands.
///
/// # Errors
/// [`GateError`].
pub async fn standing(parts: &Parts, start: &RunStart) -> Result<Standing, GateError> {
    Ok(parts.ledger.standing(&start.campaign, start.period).await?)
}
