//! The waits of an operation's workflow. A timer that fires decides nothing: the ledger is asked.

use super::{CustomerDigest, EVENTS_MAX};
use crate::activities::Pause;
use crate::operation::Why;
use crate::timer::wait_unless;
use jiff::Timestamp;
use std::time::Duration;
use temporalio_workflow::{TimerOptions, WorkflowCancellationToken, WorkflowContext};

/// The first wait after the ledger or a worker did not answer; it doubles.
const OUTAGE_WAIT: Duration = Duration::from_secs(1);
/// The longest such wait.
const OUTAGE_WAIT_MAX: Duration = Duration::from_mins(1);
/// The first wait under a hold; it doubles.
const HOLD_WAIT: Duration = Duration::from_mins(1);
/// The longest such wait.
const HOLD_WAIT_MAX: Duration = Duration::from_mins(15);
/// The wait for a listening place, or for another worker.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// No timer is shorter, whatever the clocks say.
const TIMER_MIN: Duration = Duration::from_millis(50);

/// Waits until `until` by the ledger's clock, as far as the engine's can tell, or for a signal.
/// Returns whether the time has come.
pub(super) async fn wait_for(
    ctx: &WorkflowContext<CustomerDigest>,
    until: Timestamp,
    why: Why,
) -> bool {
    let now = ctx.state(|s| s.answer.as_ref().map(|(_, now)| *now));
    let remaining = now.map_or(OUTAGE_WAIT, |now| {
        Duration::try_from(until.duration_since(now)).unwrap_or(TIMER_MIN)
    });
    let summary = match why {
        Why::Retry(class) => format!("next attempt after {class}"),
        Why::Replay => "replay under the same key".to_owned(),
        Why::LookUp => "next look-up at the provider".to_owned(),
        Why::LateAnswer => "a late answer, until the lease ends".to_owned(),
        Why::Verdict => "the verdict is acted on".to_owned(),
        Why::Human => "a human's verdict".to_owned(),
        Why::Cleanup => "next cleanup".to_owned(),
    };
    pause(ctx, remaining.max(TIMER_MIN), &summary).await
}

/// Waits out a pause, or an outage.
pub(super) async fn wait_out(ctx: &WorkflowContext<CustomerDigest>) {
    let (reason, idle, now) =
        ctx.state(|s| (s.pause, s.idle, s.answer.as_ref().map(|(_, now)| *now)));
    let (wait, summary) = match reason {
        Some(Pause::Held) => (doubled(HOLD_WAIT, HOLD_WAIT_MAX, idle), "held: waits for resume"),
        Some(Pause::Paced(at)) => (time_to(at, now), "its place in the rate"),
        Some(Pause::Batched(at)) => (time_to(at, now), "its batch, which goes again"),
        Some(Pause::Listening) => (SHORT_WAIT, "a place to listen for its answer"),
        Some(Pause::Draining) => (SHORT_WAIT, "another worker"),
        None => (outage_wait(idle), "the ledger or a worker"),
    };
    pause(ctx, wait.max(TIMER_MIN), summary).await;
}

/// How long it is from `now` to `at`, both by the ledger's clock.
fn time_to(at: Timestamp, now: Option<Timestamp>) -> Duration {
    now.map_or(SHORT_WAIT, |now| Duration::try_from(at.duration_since(now)).unwrap_or(TIMER_MIN))
}

/// One timer that nothing ends early.
pub(super) async fn rest(ctx: &WorkflowContext<CustomerDigest>, wait: Duration) {
    let options = TimerOptions::builder(wait)
        .cancellation_token(WorkflowCancellationToken::new())
        .summary("the ledger or a worker".to_owned())
        .build();
    ctx.timer(options).await;
}

/// One timer that a signal ends early; returns whether it fired.
pub(super) async fn pause(
    ctx: &WorkflowContext<CustomerDigest>,
    wait: Duration,
    summary: &str,
) -> bool {
    wait_unless(ctx, wait, summary, EVENTS_MAX, |s| s.poked || !s.letters.is_empty()).await
}

pub(super) fn outage_wait(idle: u32) -> Duration {
    doubled(OUTAGE_WAIT, OUTAGE_WAIT_MAX, idle)
}

/// `base`, doubled for each time after the first, up to `cap`.
fn doubled(base: Duration, cap: Duration, times: u32) -> Duration {
    base.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16))).min(cap)
}
