//! `DigestRun`: freezes the selection, dispatches it page by page, watches, and closes.

#![expect(
    clippy::needless_pass_by_value,
    clippy::must_use_candidate,
    missing_docs,
    reason = "the engine's macros set the shape of handlers"
)]

use crate::activities::{Gates, LedgerRef, RunPlan, RunStart, Standing, WatchInput};
use crate::attributes;
use crate::page::{DigestPage, PageInput, patient};
use crate::signal::{Anything, check_words};
use crate::timer::wait_unless;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ActivityOptions, ChildWorkflowOptions, ContinueAsNewOptions, ParentClosePolicy, RetryPolicy,
    SyncWorkflowContext, WorkflowCancellationToken, WorkflowContext, WorkflowContextView,
    WorkflowIdReusePolicy, WorkflowResult,
};

/// A history that grows past this many events is continued as new.
const EVENTS_MAX: u32 = 2_000;
/// This many pages are started at a time; measured, more do not help.
const PAGES_AT_ONCE: u64 = 2;
/// How long between two looks at the ledger while something moves.
const WATCH: Duration = Duration::from_secs(5);
/// How long between two looks when nothing has moved for a while.
const WATCH_MAX: Duration = Duration::from_mins(5);
/// How long to wait for room when too many operations are under way.
const ROOM: Duration = Duration::from_secs(1);
/// How long the freeze may go without a sign of life. It gives one every few seconds, however long a
/// query takes, so this is how soon another worker takes over from one that is gone.
const FREEZE_HEARTBEAT: Duration = Duration::from_secs(15);

/// What a run's workflow is started with, and continued with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInput {
    /// The run.
    pub start: RunStart,
    /// How it is carried out; absent before the ledger was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RunPlan>,
    /// The position up to which operations were enqueued.
    #[serde(default)]
    pub cursor: u64,
    /// The highest transition counter that the ledger has shown.
    #[serde(default)]
    pub counter: i64,
}

impl RunInput {
    /// A run from its beginning.
    #[must_use]
    pub const fn new(start: RunStart) -> Self {
        Self { start, plan: None, cursor: 0, counter: 0 }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// How many operations were selected. What became of them is in `digestd status`, which
    /// computes it whenever it is read.
    pub selected: u64,
    /// Whether this workflow closed the run; otherwise it was closed before.
    pub closed_here: bool,
}

/// What the query `status` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatusAnswer {
    /// The run.
    pub start: RunStart,
    /// What it is doing, in words.
    pub doing: String,
    /// The position up to which operations were enqueued.
    pub enqueued: u64,
    /// How it stood at the last look.
    pub standing: Option<Standing>,
}

/// What somebody asked of the run by a signal.
#[derive(Clone, Debug)]
enum Wish {
    Hold { by: String, reason: String },
    Resume { by: String, reason: String },
}

/// One campaign in one period.
#[workflow]
pub struct DigestRun {
    input: RunInput,
    wishes: Vec<Wish>,
    /// Somebody says that the ledger has news.
    poked: bool,
    standing: Option<Standing>,
    doing: String,
    shown: String,
    cancel_noticed: bool,
    /// How many wishes this execution has carried out.
    carried_out: u64,
}

#[workflow_methods]
impl DigestRun {
    #[init]
    fn new(ctx: &WorkflowContextView, input: RunInput) -> Self {
        let shown = ctx.search_attributes().and_then(|fields| fields.get(&attributes::STATE));
        Self {
            input,
            wishes: Vec::new(),
            poked: false,
            standing: None,
            doing: "opening the run".to_owned(),
            shown: shown.unwrap_or_else(|| attributes::ACTIVE.to_owned()),
            cancel_noticed: false,
            carried_out: 0,
        }
    }

    /// Freezes, dispatches, watches, closes.
    ///
    /// # Errors
    /// None that a caller decides on: activities are repeated until the ledger answers.
    #[run(name = "DigestRun")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<RunResult> {
        let start = ctx.state(|s| s.input.start.clone());
        let plan = match ctx.state(|s| s.input.plan.clone()) {
            Some(plan) => plan,
            None => {
                ctx.execute_local_activity(Gates::open_run, start.clone(), patient("open the run"))
                    .await?
            }
        };
        if plan.closed {
            return Ok(RunResult { selected: 0, closed_here: false });
        }
        ctx.state_mut(|s| s.input.plan = Some(plan.clone()));
        if ctx.state(|s| s.input.cursor) == 0 {
            doing(ctx, "freezing the selection");
            let standing = freeze(ctx, &start, &plan.ledger).await?;
            ctx.state_mut(|s| s.standing = Some(standing));
        }
        dispatch(ctx, &start, &plan).await?;
        watch(ctx, &start, &plan).await
    }

    /// Holds the run: `{"by": "…", "reason": "…"}`; anything else holds it as well.
    #[signal(name = "hold")]
    pub fn hold(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payload: Anything) {
        let (by, reason) = who(&payload.0);
        self.wishes.push(Wish::Hold { by, reason });
    }

    /// Resumes the run: `{"by": "…", "reason": "…"}`; anything else resumes it as well.
    #[signal(name = "resume")]
    pub fn resume(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payload: Anything) {
        let (by, reason) = who(&payload.0);
        self.wishes.push(Wish::Resume { by, reason });
    }

    /// The ledger has news: look at once instead of at the next timer.
    #[signal(name = "look")]
    pub fn look(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: Anything) {
        self.poked = true;
    }

    /// How the run stands, as JSON.
    #[query(name = "status")]
    pub fn status(&self, _ctx: &WorkflowContextView) -> RunStatusAnswer {
        RunStatusAnswer {
            start: self.input.start.clone(),
            doing: self.doing.clone(),
            enqueued: self.input.cursor,
            standing: self.standing.clone(),
        }
    }
}

/// Freezes the selection. A wrong query fails the activity again and again, visibly, until it is
/// corrected; nothing is sent from half a selection.
async fn freeze(
    ctx: &WorkflowContext<DigestRun>,
    start: &RunStart,
    ledger: &LedgerRef,
) -> WorkflowResult<Standing> {
    let options = ActivityOptions::with_start_to_close_timeout(Duration::from_hours(6))
        .heartbeat_timeout(FREEZE_HEARTBEAT)
        .cancellation_token(WorkflowCancellationToken::new())
        .retry_policy(
            RetryPolicy::builder()
                .initial_interval(Duration::from_secs(1))
                .backoff_coefficient(2.0)
                .maximum_interval(Duration::from_mins(1))
                .maximum_attempts(0)
                .build(),
        )
        .summary("freeze the selection".to_owned())
        .build();
    Ok(ctx.execute_activity(Gates::freeze, asked(start, ledger), options).await?)
}

/// Starts the operations page by page, as long as there is room and no hold.
async fn dispatch(
    ctx: &WorkflowContext<DigestRun>,
    start: &RunStart,
    plan: &RunPlan,
) -> WorkflowResult<()> {
    let page = u64::from(plan.page_size.max(1));
    loop {
        let standing = look(ctx, start, plan).await?;
        let cursor = ctx.state(|s| s.input.cursor);
        if standing.closed || cursor >= standing.selected {
            return Ok(());
        }
        continue_if_long(ctx)?;
        if standing.held.is_some() {
            doing(ctx, "held: nothing is enqueued until it is resumed");
            wait(ctx, WATCH, "held").await;
            continue;
        }
        let room = u64::from(plan.in_flight).saturating_sub(standing.in_flight) / page;
        if room == 0 && standing.in_flight > 0 {
            doing(ctx, "waiting for room: enough operations are under way");
            wait(ctx, ROOM, "room for another page").await;
            continue;
        }
        doing(ctx, "enqueueing");
        let pages = room.clamp(1, PAGES_AT_ONCE);
        let until = standing.selected.min(cursor + pages * page);
        let starts = (cursor..until).step_by(usize::try_from(page).unwrap_or(1)).map(|after| {
            let until = until.min(after + page);
            start_page(ctx, start, plan, after, until)
        });
        let done = temporalio_workflow::workflows::join_all(starts).await;
        if done.into_iter().all(|done| done) {
            ctx.state_mut(|s| s.input.cursor = until);
        } else {
            doing(ctx, "enqueueing again soon: a page was ended before it was done");
            wait(ctx, WATCH, "a page that was ended before it was done").await;
        }
    }
}

/// Starts a page and waits for its end; returns whether it did its work. One that did not is harmless
/// to start again, and so is one that runs already (an earlier run's, before a reset).
async fn start_page(
    ctx: &WorkflowContext<DigestRun>,
    start: &RunStart,
    plan: &RunPlan,
    after: u64,
    until: u64,
) -> bool {
    let input = PageInput { run: start.clone(), plan: plan.clone(), after, until };
    let options = ChildWorkflowOptions::builder()
        .workflow_id(format!("{}-page:{}:{}", start.campaign, start.period, after))
        .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
        .parent_close_policy(ParentClosePolicy::Abandon)
        .cancellation_token(WorkflowCancellationToken::new())
        .search_attributes(attributes::of_run(&start.campaign, start.period))
        .build();
    match ctx.start_child_workflow(DigestPage::run, input, options).await {
        Ok(page) => page.result().await.is_ok(),
        Err(_) => false,
    }
}

/// Watches until every operation is at rest and the ledger has closed the run.
async fn watch(
    ctx: &WorkflowContext<DigestRun>,
    start: &RunStart,
    plan: &RunPlan,
) -> WorkflowResult<RunResult> {
    let mut pause = WATCH;
    let mut before = None;
    loop {
        let standing = look(ctx, start, plan).await?;
        if standing.closed {
            return Ok(RunResult { selected: standing.selected, closed_here: true });
        }
        continue_if_long(ctx)?;
        pause = match before {
            Some(open) if open == standing.open => (pause * 3 / 2).min(WATCH_MAX),
            _ => WATCH,
        };
        before = Some(standing.open);
        doing(ctx, &format!("watching: {} operations are not at rest", standing.open));
        wait(ctx, pause, "the operations that are not at rest").await;
    }
}

/// Carries out what was asked by signals, then asks the ledger how the run stands.
async fn look(
    ctx: &WorkflowContext<DigestRun>,
    start: &RunStart,
    plan: &RunPlan,
) -> WorkflowResult<Standing> {
    if ctx.cancellation_token().is_cancelled() && !ctx.state(|s| s.cancel_noticed) {
        ctx.state_mut(|s| {
            s.cancel_noticed = true;
            let reason = "cancellation was requested in the engine".to_owned();
            s.wishes.push(Wish::Hold { by: "engine".to_owned(), reason });
        });
    }
    let mut input = asked(start, &plan.ledger);
    for wish in ctx.state_mut(|s| std::mem::take(&mut s.wishes)) {
        let number = ctx.state_mut(|s| {
            s.carried_out += 1;
            s.carried_out
        });
        let request = format!("{}:{number}", ctx.run_id());
        match wish {
            Wish::Hold { by, reason } => {
                let asked = WatchInput { by, reason, request, ..input.clone() };
                ctx.execute_local_activity(Gates::hold, asked, patient("hold")).await?;
            }
            Wish::Resume { by, reason } => {
                let asked = WatchInput { by, reason, request, ..input.clone() };
                ctx.execute_local_activity(Gates::resume, asked, patient("resume")).await?;
            }
        }
    }
    ctx.state_mut(|s| s.poked = false);
    input.noted = ctx.state(|s| s.input.counter);
    let standing = ctx.execute_local_activity(Gates::watch, input, patient("watch")).await?;
    ctx.state_mut(|s| {
        // A ledger that shows less than before was restored from a backup; the gate holds the run.
        s.input.counter = s.input.counter.max(standing.counter);
        s.standing = Some(standing.clone());
    });
    show(ctx);
    Ok(standing)
}

fn asked(start: &RunStart, ledger: &LedgerRef) -> WatchInput {
    WatchInput {
        run: start.clone(),
        ledger: ledger.clone(),
        by: String::new(),
        reason: String::new(),
        request: String::new(),
        noted: 0,
    }
}

/// One timer that a signal ends early.
async fn wait(ctx: &WorkflowContext<DigestRun>, wait: Duration, summary: &str) {
    wait_unless(ctx, wait, summary, EVENTS_MAX, |s| s.poked || !s.wishes.is_empty()).await;
}

/// Continues as new when the history has grown long. No page is open then, and wishes are kept by
/// carrying them out first.
fn continue_if_long(ctx: &WorkflowContext<DigestRun>) -> WorkflowResult<()> {
    if ctx.history_length() > EVENTS_MAX && ctx.state(|s| s.wishes.is_empty()) {
        let input = ctx.state(|s| s.input.clone());
        ctx.continue_as_new(input, ContinueAsNewOptions::default())?;
    }
    Ok(())
}

fn doing(ctx: &WorkflowContext<DigestRun>, words: &str) {
    ctx.state_mut(|s| words.clone_into(&mut s.doing));
    show(ctx);
}

/// Says in words what the run is doing, and upserts its state only when it is held.
fn show(ctx: &WorkflowContext<DigestRun>) {
    let (details, state) = ctx.state(|s| {
        let held = s.standing.as_ref().and_then(|standing| standing.held.clone());
        let mut lines = vec![
            format!("**{} of {}**", s.input.start.campaign, s.input.start.period),
            s.doing.clone(),
        ];
        if let Some(standing) = &s.standing {
            lines.push(format!(
                "{} selected, {} enqueued, {} not at rest.",
                standing.selected, s.input.cursor, standing.open
            ));
        }
        if let Some(held) = &held {
            lines.push(format!(
                "Held ({held}). `digestd resume --period {} --reason \"…\"` goes on.",
                s.input.start.period
            ));
        }
        let state = if held.is_some() { "held" } else { attributes::ACTIVE };
        (lines.join("\n\n"), state.to_owned())
    });
    ctx.set_current_details(details);
    if state != ctx.state(|s| s.shown.clone()) {
        ctx.upsert_search_attributes([attributes::STATE.value_set(state.clone())]);
        ctx.state_mut(|s| s.shown = state);
    }
}

/// Who asks and why, read tolerantly; words that must not be kept are replaced.
fn who(payload: &serde_json::Value) -> (String, String) {
    let word = |name: &str, otherwise: &str| {
        payload
            .get(name)
            .and_then(serde_json::Value::as_str)
            .filter(|text| check_words(text, name).is_ok() && !text.is_empty())
            .unwrap_or(otherwise)
            .to_owned()
    };
    (word("by", "signal"), word("reason", "asked by a signal"))
}
