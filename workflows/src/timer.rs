//! One timer that a signal ends early, and a history that has grown long.

use std::time::Duration;
use temporalio_workflow::{
    TimerOptions, WaitConditionOptions, WorkflowCancellationToken, WorkflowContext,
};

/// Waits for `wait`, or until `news` is true of the workflow's state, or until the history has more
/// than `events_max` events, which signals alone may bring about; returns whether the time has passed. Both have tokens of their own: a cancellation that is requested in the engine stops
/// nothing here.
pub(crate) async fn wait_unless<W>(
    ctx: &WorkflowContext<W>,
    wait: Duration,
    summary: &str,
    events_max: u32,
    mut news: impl FnMut(&W) -> bool,
) -> bool {
    let token = WorkflowCancellationToken::new();
    let options = TimerOptions::builder(wait)
        .cancellation_token(token.clone())
        .summary(summary.to_owned())
        .build();
    let detached = WaitConditionOptions::builder()
        .cancellation_token(WorkflowCancellationToken::new())
        .build();
    let woken = |state: &W| news(state) || ctx.history_length() > events_max;
    let fired = temporalio_workflow::workflows::select! {
        _ = ctx.timer(options) => true,
        _ = ctx.wait_condition_with_options(woken, detached) => false,
    };
    if !fired {
        // Dropping a timer does not cancel it.
        token.cancel();
    }
    fired
}
