//! The activities as the worker registers them: thin, each one call into the gate it is named after.

#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "each method is one line; what it does and its errors are told where it leads"
)]

use crate::calendar::Calendar;
use crate::delivery::{Gatherer, Pacer};
use crate::ledger::{Ledger, LedgerError};
use crate::message::Templates;
use crate::metrics::Metrics;
use crate::provider::Provider;
use crate::source::{Parameters, Source, SourceError};
use crate::{cleanup, delivery, eligibility, reconciliation};
use digest_workflows::activities::{
    DeliverInput, EnqueueInput, Enqueued, OperationInput, Progress, RecordInput, RunPlan, RunStart,
    Standing, WatchInput, declared,
};
use digest_workflows::operation::canary::tested_campaign;
use digest_workflows::operation::{OperationKey, Rules};
use futures::FutureExt;
use jiff::SignedDuration;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use temporalio_common::error::ApplicationFailure;
use temporalio_sdk::activities::{ActivityContext, ActivityError, activities};
use tokio::sync::{Semaphore, watch};

/// How often a long activity says that it goes on, well within the time that its workflow allows.
const BEAT: Duration = Duration::from_secs(4);

/// Everything that the gates stand on.
pub struct Parts {
    /// What was selected, attempted, and is known.
    pub ledger: Ledger,
    /// The user's customers and digest data.
    pub source: Source,
    /// The user's templates.
    pub templates: Templates,
    /// Who delivers.
    pub provider: Arc<dyn Provider>,
    /// The campaign's settings.
    pub campaign: Campaign,
    /// Its ticks.
    pub calendar: Calendar,
    /// The rules that new operations are started with.
    pub rules: Rules,
    /// The rate of the whole deployment.
    pub pacer: Pacer,
    /// Places to hand over and to listen for a late answer.
    pub listening: Arc<Semaphore>,
    /// Brings messages together that may share a request, where batching is on.
    pub gatherer: Option<Gatherer>,
    /// Whether the worker is shutting down: no attempt begins any more.
    pub draining: watch::Receiver<bool>,
    /// What this worker has done, in numbers.
    pub metrics: Arc<Metrics>,
}

/// The settings of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// A scheduled run that starts later than this after its tick waits for `resume`.
    pub late_start: SignedDuration,
    /// How long messages are useful.
    pub useful_for: SignedDuration,
    /// How many operations one page starts.
    pub page_size: u32,
    /// How many operations may be enqueued and not yet past their first attempt.
    pub in_flight: u32,
}

/// Why an activity gave no answer. The workflow concludes nothing from it and asks again.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger, when it was asked for a whole batch.
    #[error(transparent)]
    Batch(Arc<LedgerError>),
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The worker is configured for another campaign.
    #[error(
        "this worker serves the campaign {ours:?}, not {asked:?}; give each campaign its own task queue"
    )]
    OtherCampaign {
        /// The campaign of this worker.
        ours: String,
        /// The campaign of the workflow.
        asked: String,
    },
    /// The period has no tick or window.
    #[error(transparent)]
    Calendar(#[from] crate::calendar::CalendarError),
    /// A statement needs the run's window, which is not recorded.
    #[error("the run has no window recorded; start it with `digestd run`")]
    NoWindow,
    /// A defect of ours.
    #[error("the activity panicked, which is a defect of digestd: its worker's log says where")]
    Panicked,
}

impl GateError {
    /// The failure's type in the engine.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Ledger(LedgerError::Foreign { .. }) => "ForeignLedger",
            Self::Ledger(_) | Self::Batch(_) => "Ledger",
            Self::Source(_) => "Source",
            Self::OtherCampaign { .. } => "OtherCampaign",
            Self::Calendar(_) | Self::NoWindow => "Calendar",
            Self::Panicked => "Panicked",
        }
    }

    /// What failed, as a metric has it.
    const fn part(&self) -> &'static str {
        match self {
            Self::Ledger(_) | Self::Batch(_) => "ledger",
            Self::Source(_) => "source",
            _ => "other",
        }
    }
}

/// The answer for the engine. Every failure carries a type: a bare `?` would lose it. A panic is caught
/// here, because its message may quote an address or content and would go into the engine.
async fn answered<T>(
    parts: &Parts,
    gate: impl Future<Output = Result<T, GateError>>,
) -> Result<T, ActivityError> {
    // What the gates stand on is databases and sockets, which know what was committed.
    let result = AssertUnwindSafe(gate).catch_unwind().await;
    result.unwrap_or(Err(GateError::Panicked)).map_err(|error| {
        tracing::warn!(error = %error, "an activity gave no answer");
        parts.metrics.gave_no_answer(error.part());
        let type_name = error.type_name().to_owned();
        ApplicationFailure::builder(error).type_name(type_name).build().into()
    })
}

impl Parts {
    /// Refuses work for another campaign.
    ///
    /// # Errors
    /// [`GateError::OtherCampaign`].
    pub fn must_serve(&self, campaign: &str) -> Result<(), GateError> {
        if campaign == self.campaign.name {
            return Ok(());
        }
        let (ours, asked) = (self.campaign.name.clone(), campaign.to_owned());
        Err(GateError::OtherCampaign { ours, asked })
    }

    /// Refuses an operation of another campaign. The canaries of ours are served too; a run of theirs
    /// is not, for it would select every customer a second time.
    ///
    /// # Errors
    /// [`GateError::OtherCampaign`].
    pub fn must_serve_operation(&self, key: &OperationKey) -> Result<(), GateError> {
        if key.is_canary_of(&self.campaign.name) {
            return Ok(());
        }
        self.must_serve(key.campaign())
    }

    /// What a run binds to the named parameters of the source's statements.
    ///
    /// # Errors
    /// [`GateError::NoWindow`] when the run was never started.
    pub fn parameters<'a>(&self, run: &'a crate::ledger::Run) -> Result<Parameters<'a>, GateError> {
        parameters(run).ok_or(GateError::NoWindow)
    }
}

/// What a run binds to the named parameters of the source's statements; `None` when it was never
/// started. Canaries ask as the campaign that they are for.
#[must_use]
pub fn parameters(run: &crate::ledger::Run) -> Option<Parameters<'_>> {
    let (period_start, period_end) = run.window?;
    Some(Parameters {
        campaign: tested_campaign(&run.campaign).unwrap_or(&run.campaign),
        period: run.period,
        selected_at: run.selected_at?,
        period_start,
        period_end,
    })
}

/// The activities, with what they stand on.
pub struct Gates {
    parts: Arc<Parts>,
}

impl Gates {
    /// The activities on `parts`.
    #[must_use]
    pub const fn new(parts: Arc<Parts>) -> Self {
        Self { parts }
    }
}

/// Tells the engine that this worker lives while `work` goes on, whose own waits are bounded: a slow
/// query is left alone, and a dead worker is noticed soon.
async fn beating<T>(
    ctx: &ActivityContext,
    work: impl Future<Output = Result<T, ActivityError>>,
) -> Result<T, ActivityError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(BEAT) => ctx.record_heartbeat(()).await?,
        }
    }
}

#[activities]
impl Gates {
    #[activity(definition = declared::Deliver)]
    pub async fn deliver(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: DeliverInput,
    ) -> Result<Progress, ActivityError> {
        answered(&self.parts, delivery::deliver(&self.parts, &ctx.client(), input)).await
    }

    #[activity(definition = declared::Reconcile)]
    pub async fn reconcile(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: OperationInput,
    ) -> Result<Progress, ActivityError> {
        answered(&self.parts, reconciliation::reconcile(&self.parts, &input)).await
    }

    #[activity(definition = declared::Record)]
    pub async fn record(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: RecordInput,
    ) -> Result<Progress, ActivityError> {
        answered(&self.parts, reconciliation::record(&self.parts, &input)).await
    }

    #[activity(definition = declared::CleanUp)]
    pub async fn clean_up(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: OperationInput,
    ) -> Result<Progress, ActivityError> {
        answered(&self.parts, cleanup::clean_up(&self.parts, &input)).await
    }

    #[activity(definition = declared::OpenRun)]
    pub async fn open_run(
        self: Arc<Self>,
        _ctx: ActivityContext,
        start: RunStart,
    ) -> Result<RunPlan, ActivityError> {
        answered(&self.parts, eligibility::open_run(&self.parts, &start)).await
    }

    #[activity(definition = declared::Freeze)]
    pub async fn freeze(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: WatchInput,
    ) -> Result<Standing, ActivityError> {
        let parts = &self.parts;
        let freezing = async {
            parts.ledger.must_be(&input.ledger)?;
            while !eligibility::freeze_page(parts, &input.run).await? {}
            eligibility::question_selection(parts, &input.run).await?;
            eligibility::standing(parts, &input.run).await
        };
        beating(&ctx, answered(parts, freezing)).await
    }

    #[activity(definition = declared::Enqueue)]
    pub async fn enqueue(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: EnqueueInput,
    ) -> Result<Enqueued, ActivityError> {
        answered(&self.parts, eligibility::enqueue(&self.parts, &input)).await
    }

    #[activity(definition = declared::Watch)]
    pub async fn watch(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: WatchInput,
    ) -> Result<Standing, ActivityError> {
        answered(&self.parts, eligibility::watch(&self.parts, &input)).await
    }

    #[activity(definition = declared::Hold)]
    pub async fn hold(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: WatchInput,
    ) -> Result<Standing, ActivityError> {
        answered(&self.parts, eligibility::hold(&self.parts, &input)).await
    }

    #[activity(definition = declared::Resume)]
    pub async fn resume(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: WatchInput,
    ) -> Result<Standing, ActivityError> {
        answered(&self.parts, eligibility::resume(&self.parts, &input)).await
    }
}
