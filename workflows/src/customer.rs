//! `CustomerDigest`: drives one operation through the machine.
//!
//! A short loop that turns each step of the decision core into an activity, a timer or a wait, and
//! takes the ledger's answer for the truth. It decides nothing. It always completes, and only its
//! state says how.

#![expect(
    clippy::needless_pass_by_value,
    clippy::must_use_candidate,
    missing_docs,
    reason = "the engine's macros set the shape of handlers"
)]

mod waits;
mod words;

use crate::activities::{
    DeliverInput, Evidence, Gates, LedgerRef, OperationInput, Pause, Progress, RecordInput,
};
use crate::attributes;
use crate::operation::{FailureClass, Operation, OperationKey, Rules, State, Step};
use crate::signal::{Anything, Letter, verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ContinueAsNewOptions, LocalActivityOptions, RetryPolicy, SyncWorkflowContext,
    WorkflowCancellationToken, WorkflowContext, WorkflowContextView, WorkflowResult,
};
use waits::{outage_wait, pause, rest, wait_for, wait_out};
use words::show;

/// A history that grows past this many events is continued as new.
const EVENTS_MAX: u32 = 1_500;
/// At most this many remarks are kept for the details.
const REMARKS_MAX: usize = 5;
/// At most this many signals wait for the ledger; more are noted and dropped.
const LETTERS_MAX: usize = 50;
/// The wait before a step that led to itself is tried again.
const REPEAT_WAIT: Duration = Duration::from_secs(10);
/// What an activity needs besides the provider's time: the ledger, rendering, the rate.
const OVERHEAD: Duration = Duration::from_mins(1);

/// What an operation's workflow is started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CustomerInput {
    /// The operation.
    pub key: OperationKey,
    /// The ledger it is recorded in.
    pub ledger: LedgerRef,
    /// The rules, frozen at the start.
    pub rules: Rules,
}

/// How an operation's workflow ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerResult {
    /// The operation's state then.
    pub state: State,
    /// The class of its last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// How many attempts there were.
    pub attempts: u32,
}

/// What the query `status` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerStatus {
    /// The operation.
    pub key: OperationKey,
    /// Its state; absent before the ledger's first answer.
    pub state: Option<State>,
    /// The class of its last failure.
    pub class: Option<FailureClass>,
    /// What it waits for, in words.
    pub waits_for: String,
    /// What was noted about signals, newest last.
    pub remarks: Vec<String>,
}

/// One customer in one period.
#[workflow]
pub struct CustomerDigest {
    input: CustomerInput,
    /// The operation and the time of the ledger's last answer.
    answer: Option<(Operation, Timestamp)>,
    letters: VecDeque<Letter>,
    /// Somebody says that the ledger has news.
    poked: bool,
    remarks: Vec<String>,
    waits_for: String,
    slot: Option<Timestamp>,
    pause: Option<Pause>,
    /// How often in a row nothing could be done; paces the next try.
    idle: u32,
    /// What the state search attribute says.
    shown: String,
}

#[workflow_methods]
impl CustomerDigest {
    #[init]
    fn new(ctx: &WorkflowContextView, input: CustomerInput) -> Self {
        // Continued as new, the attributes are inherited.
        let shown = ctx.search_attributes().and_then(|fields| fields.get(&attributes::STATE));
        Self {
            input,
            answer: None,
            letters: VecDeque::new(),
            poked: false,
            remarks: Vec::new(),
            waits_for: "its first attempt".to_owned(),
            slot: None,
            pause: None,
            idle: 0,
            shown: shown.unwrap_or_else(|| attributes::ACTIVE.to_owned()),
        }
    }

    /// Drives the operation until nothing follows by itself.
    ///
    /// # Errors
    /// None: it always completes, and only its result says how.
    #[run(name = "CustomerDigest")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<CustomerResult> {
        let mut presumed: Option<Timestamp> = None;
        loop {
            if let Some(letter) = ctx.state_mut(|s| s.letters.pop_front()) {
                if !hand_over(ctx, letter).await {
                    // The letter itself would end an interruptible wait at once.
                    rest(ctx, outage_wait(ctx.state(|s| s.idle))).await;
                }
                continue;
            }
            if ctx.history_length() > EVENTS_MAX {
                let input = ctx.state(|s| s.input.clone());
                ctx.continue_as_new(input, ContinueAsNewOptions::default())?;
            }
            let poked = ctx.state_mut(|s| std::mem::take(&mut s.poked));
            let step = if poked && ctx.state(|s| s.answer.is_some()) {
                Step::Reconcile
            } else {
                ctx.state(|s| s.next_step(presumed.take()))
            };
            match step {
                Step::Done => return Ok(ctx.state(Self::result)),
                Step::Wait(until, why) => {
                    presumed = wait_for(ctx, until, why).await.then_some(until);
                }
                step => {
                    let answered = perform(ctx, step).await;
                    show(ctx);
                    if ctx.state(|s| s.pause.is_some()) {
                        wait_out(ctx).await;
                    } else if answered && ctx.state(|s| s.next_step(None)) == step {
                        // Nothing came of it, so asking again at once would not help either.
                        rest(ctx, REPEAT_WAIT).await;
                    }
                }
            }
        }
    }

    /// A verdict about an unknown: `{"verdict": "delivered" | "not_delivered" | "abandon",
    /// "attempt": 1, "by": "…", "reason": "…"}`. Anything else is noted and changes nothing.
    #[signal(name = "reconcile")]
    pub fn reconcile(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payload: Anything) {
        match verdict(&payload.0) {
            Ok(letter) => self.post(letter),
            Err(why) => self.remark(format!("signal reconcile ignored: {why}")),
        }
    }

    /// Evidence that the ledger could not be made to hold, or a hint that it has news.
    #[signal(name = "evidence")]
    pub fn evidence(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payload: Anything) {
        match serde_json::from_value::<Evidence>(payload.0) {
            Ok(evidence) => self.post(Letter::evidence(evidence)),
            Err(_) => self.poked = true,
        }
    }

    /// A hold is of a run; here it is only noted.
    #[signal(name = "hold")]
    fn hold(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: Anything) {
        let run = crate::run_id(self.input.key.campaign(), self.input.key.period());
        self.remark(format!("signal hold ignored: hold the run {run} instead"));
    }

    /// The run was resumed: ask at once instead of at the next timer.
    #[signal(name = "resume")]
    pub fn resume(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: Anything) {
        self.poked = true;
    }

    /// How the operation stands, as JSON.
    #[query(name = "status")]
    pub fn status(&self, _ctx: &WorkflowContextView) -> CustomerStatus {
        CustomerStatus {
            key: self.input.key.clone(),
            state: self.answer.as_ref().map(|(operation, _)| operation.state),
            class: self.answer.as_ref().and_then(|(operation, _)| operation.class),
            waits_for: self.waits_for.clone(),
            remarks: self.remarks.clone(),
        }
    }
}

impl CustomerDigest {
    /// The next step; `presumed` is the ledger's time that a timer has waited for. Whatever it leads
    /// to, the ledger checks it by its own clock.
    fn next_step(&self, presumed: Option<Timestamp>) -> Step {
        match &self.answer {
            // The ledger has not been asked yet; its answer says whether this was the right guess.
            None => Step::Deliver { generation: 1, ordinal: 1 },
            Some((operation, now)) => {
                operation.next(&self.input.rules, presumed.map_or(*now, |at| at.max(*now)))
            }
        }
    }

    fn result(&self) -> CustomerResult {
        let operation = self.answer.as_ref().map(|(operation, _)| operation);
        CustomerResult {
            state: operation.map_or(State::Selected, |operation| operation.state),
            class: operation.and_then(|operation| operation.class),
            attempts: operation.map_or(0, |operation| operation.attempts),
        }
    }

    fn post(&mut self, letter: Letter) {
        if self.letters.len() < LETTERS_MAX {
            self.letters.push_back(letter);
        } else {
            self.remark("too many signals at once: one was dropped".to_owned());
        }
    }

    fn remark(&mut self, remark: String) {
        if self.remarks.len() >= REMARKS_MAX {
            self.remarks.remove(0);
        }
        self.remarks.push(remark);
    }

    /// Takes an activity's answer for the truth.
    fn take(&mut self, progress: Progress) {
        self.waits_for = progress.operation.waits_for(progress.now);
        self.answer = Some((progress.operation, progress.now));
        self.slot = match progress.pause {
            Some(Pause::Paced(at)) => Some(at),
            _ => None,
        };
        self.idle = if progress.pause.is_some() { self.idle + 1 } else { 0 };
        self.pause = progress.pause;
        if let Some(evidence) = progress.uncommitted {
            self.letters.push_front(Letter::evidence(evidence));
        }
    }

    /// An activity did not answer: a lost worker, or an unreachable ledger. Nothing is concluded
    /// from it; the same question is asked again.
    fn lost(&mut self) {
        self.idle += 1;
        self.pause = None;
        "the ledger or a worker, which did not answer; asked again soon"
            .clone_into(&mut self.waits_for);
    }

    fn input(&self, random: f64) -> OperationInput {
        OperationInput {
            key: self.input.key.clone(),
            ledger: self.input.ledger.clone(),
            rules: self.input.rules.clone(),
            random,
        }
    }
}

/// Performs one step; whatever comes back is in the workflow's state afterwards. Returns whether
/// anything came back.
async fn perform(ctx: &WorkflowContext<CustomerDigest>, step: Step) -> bool {
    let random = ctx.random::<f64>();
    let input = ctx.state(|s| s.input(random));
    let key = input.key.to_string();
    let timeouts = input.rules.timeouts;
    let answer_in = Duration::try_from(timeouts.timeout).unwrap_or(OVERHEAD);
    let result = match step {
        Step::Deliver { generation, ordinal } => {
            let slot = ctx.state_mut(|s| s.slot.take());
            let input = DeliverInput { operation: input, generation, ordinal, slot };
            // Connecting and the answer may each take the time-out.
            let options = local(answer_in * 2 + OVERHEAD, format!("deliver {key}"));
            ctx.execute_local_activity(Gates::deliver, input, options).await
        }
        Step::CleanUp => {
            let options = local(OVERHEAD, format!("clean up {key}"));
            ctx.execute_local_activity(Gates::clean_up, input, options).await
        }
        _ => {
            let options = local(answer_in + OVERHEAD, format!("reconcile {key}"));
            ctx.execute_local_activity(Gates::reconcile, input, options).await
        }
    };
    let answered = result.is_ok();
    if let Ok(progress) = result {
        ctx.state_mut(|s| s.take(progress));
    } else {
        ctx.state_mut(CustomerDigest::lost);
        show(ctx);
        pause(ctx, outage_wait(ctx.state(|s| s.idle)), "the ledger or a worker").await;
    }
    answered
}

/// Has the ledger record a signal; returns whether it did.
async fn hand_over(ctx: &WorkflowContext<CustomerDigest>, letter: Letter) -> bool {
    let random = ctx.random::<f64>();
    let input = RecordInput {
        operation: ctx.state(|s| s.input(random)),
        event: letter.event.clone(),
        by: letter.by.clone(),
        reason: letter.reason.clone(),
        proof: letter.proof.clone(),
    };
    let options = local(OVERHEAD, format!("record {}", letter.event.name()));
    let Ok(progress) = ctx.execute_local_activity(Gates::record, input, options).await else {
        ctx.state_mut(|s| {
            s.letters.push_front(letter);
            s.lost();
        });
        show(ctx);
        return false;
    };
    let note = progress.note;
    ctx.state_mut(|s| {
        s.take(progress);
        if let Some(note) = note {
            s.remark(format!("{} from {}: {note}", letter.event.name(), letter.by));
        }
    });
    show(ctx);
    true
}

/// A local activity of the workflow task: tried once, because the workflow asks again by itself, and
/// not stopped by a requested cancellation.
fn local(timeout: Duration, summary: String) -> LocalActivityOptions {
    LocalActivityOptions::builder()
        .start_to_close_timeout(timeout)
        .schedule_to_close_timeout(timeout * 4)
        .retry_policy(RetryPolicy::builder().maximum_attempts(1).build())
        .cancellation_token(WorkflowCancellationToken::new())
        .summary(summary)
        .build()
}
