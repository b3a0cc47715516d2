//! The worker process: polls the engine, sweeps, answers health checks and scrapes, and drains when it
//! is told to stop.

use crate::assemble::{self, Delivering};
use crate::config::{Config, Secrets};
use crate::http::{self, Desk, Http, Watch};
use crate::interruption;
use crate::metrics::{EngineMetrics, Exposition, Newest};
use crate::missed::Missed;
use crate::restore;
use crate::retention::Retention;
use crate::sweep::Sweep;
use crate::webhooks::{Listening, Webhooks};
use crate::workflows;
use anyhow::anyhow;
use digest_activities::crash;
use digest_activities::gates::{Gates, Parts};
use digest_activities::ledger::{GONE_BACK, Ledger};
use digest_activities::webhook::Webhook;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use temporalio_client::Client;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::sync::watch;

/// Workflow tasks at once beside those that deliver: a task holds its place while its delivery goes
/// on, and runs, pages and waiting polls need some too.
const WORKFLOW_TASKS_BESIDE: usize = 20;
/// Activities of the runs at once: freezes.
const REMOTE_ACTIVITIES: usize = 10;

/// A worker that is ready to run.
pub struct Service {
    config: Config,
    client: Client,
    parts: Arc<Parts>,
    delivering: Delivering,
    webhook: Option<Arc<dyn Webhook>>,
    desk: Arc<Desk>,
    drain: watch::Sender<bool>,
}

impl Service {
    /// Connects everything.
    ///
    /// # Errors
    /// The first part that cannot be had, naming its cure. Nothing was started then.
    pub async fn connect(config: Config, secrets: &Secrets) -> anyhow::Result<Self> {
        let client = assemble::engine(&config, true).await?;
        let delivering = assemble::provider(&config, secrets).await?;
        Self::with(config, secrets, client, delivering).await
    }

    /// The same on a client and a provider that exist already.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn with(
        config: Config,
        secrets: &Secrets,
        client: Client,
        delivering: Delivering,
    ) -> anyhow::Result<Self> {
        let (drain, draining) = watch::channel(false);
        let provider = Arc::clone(&delivering.provider);
        let parts = assemble::parts(&config, secrets, provider, draining).await?;
        let webhook = assemble::webhook(&config, secrets)?;
        let engine = Some(client.clone());
        let desk = Arc::new(Desk::new(config.clone(), secrets, parts.ledger.clone(), engine)?);
        Ok(Self { config, client, parts: Arc::new(parts), delivering, webhook, desk, drain })
    }

    /// The ledger that it works on.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.parts.ledger
    }

    /// Runs until `stop` completes, then drains: no attempt begins any more, those under way end or
    /// become unknown, and the rest is left to the next worker.
    ///
    /// # Errors
    /// When the engine refuses the worker for good, or does not tell how far it has seen the ledger.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        // Before anything is polled: what a restored ledger has forgotten must not be sent again.
        let campaign = &self.config.campaign.name;
        if restore::hold_if_gone_back(&self.parts.ledger, &self.client, campaign).await? {
            tracing::error!("{GONE_BACK}; every run is held until then");
        }
        let listener = http::bind(self.config.http.listen).await?;
        let webhooks = self.webhooks().await?;
        let engine = EngineMetrics::start().inspect_err(|error| {
            tracing::warn!(error = format!("{error:#}"), "/metrics goes without the SDK's numbers");
        });
        let options = match &engine {
            Ok(engine) => RuntimeOptions::builder().telemetry_options(engine.telemetry()).build(),
            Err(_) => RuntimeOptions::builder().build(),
        };
        let runtime = Runtime::from_current_tokio(options.map_err(text)?)
            .map_err(|error| anyhow!("the engine's runtime did not start: {error}"))?;
        let grace = Duration::try_from(self.config.worker.shutdown_grace)?;
        let mut worker = self.worker(&runtime, grace)?;
        let shutdown = worker.shutdown_handle();
        let exposition = Arc::new(self.exposition(engine.ok()));
        let (ledger, name) = (self.parts.ledger.clone(), self.config.campaign.name.clone());
        let watch = Watch::new(ledger, name);
        let watching = tokio::spawn(Arc::clone(&watch).run(self.drain.subscribe()));
        let http = self.http(&exposition, watch).serve(listener);
        let refreshing = tokio::spawn(exposition.refresh(self.drain.subscribe()));
        let sweep = Sweep {
            ledger: self.parts.ledger.clone(),
            client: self.client.clone(),
            campaign: self.config.campaign.name.clone(),
            task_queue: self.config.engine.task_queue.clone(),
            rules: self.parts.rules.clone(),
        };
        let metrics = Arc::clone(&self.parts.metrics);
        let sweeping = tokio::spawn(sweep.run(metrics, self.drain.subscribe()));
        let missed = Missed {
            ledger: self.parts.ledger.clone(),
            client: self.client.clone(),
            campaign: self.config.campaign.name.clone(),
            calendar: self.parts.calendar.clone(),
            catch_up: self.config.campaign.catch_up,
            kept: self.config.retention.records,
        };
        let comparing = tokio::spawn(missed.run(self.drain.subscribe()));
        let retention = Retention::new(self.parts.ledger.clone(), &self.config);
        let dropping = tokio::spawn(retention.run(self.drain.subscribe()));
        let drain = self.drain.clone();
        let places = Arc::clone(&self.parts.listening);
        let all_places = self.config.worker.listening;
        let ending = async {
            stop.await;
            tracing::info!("draining: no attempt begins any more");
            drain.send_replace(true);
            crash::point("draining");
            // Sessions that are listened to end by themselves within the time-out, or by the end of
            // the grace period, when the ledger already knows them as unknown.
            let _ = tokio::time::timeout(grace, places.acquire_many(all_places)).await;
            shutdown();
        };
        // Nothing that could still keep it from working is left to do.
        let queue = &self.config.engine.task_queue;
        tracing::info!(campaign, queue, "the worker is ready");
        let running = async {
            let run = worker.run();
            tokio::pin!(run);
            let limit = async {
                let mut draining = self.drain.subscribe();
                let _ = draining.wait_for(|drain| *drain).await;
                tokio::time::sleep(grace).await;
            };
            tokio::select! {
                result = &mut run => result.map_err(|error| anyhow!("the worker stopped: {error}")),
                // What is still open then is known to the ledger, and asked for again.
                () = limit => Ok(()),
            }
        };
        let (result, ()) = tokio::join!(running, ending_or_done(ending, self.drain.subscribe()));
        self.drain.send_replace(true);
        sweeping.abort();
        comparing.abort();
        dropping.abort();
        refreshing.abort();
        watching.abort();
        drop(webhooks);
        http.abort();
        if let Some(sandbox) = self.delivering.sandbox {
            sandbox.stop().await;
        }
        self.parts.ledger.close().await;
        result
    }

    fn worker(&self, runtime: &Runtime, grace: Duration) -> anyhow::Result<Worker> {
        let concurrency = usize::try_from(self.config.worker.concurrency)?;
        let tuner = TunerHolder::builder()
            .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(
                concurrency + WORKFLOW_TASKS_BESIDE,
            ))
            .activity_task_slot_supplier(FixedSizeSlotSupplier::new(REMOTE_ACTIVITIES))
            .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(concurrency))
            .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .build();
        let mut options = WorkerOptions::new(self.config.engine.task_queue.clone())
            .tuner(tuner)
            .graceful_shutdown_period(grace)
            .register_activities(Gates::new(Arc::clone(&self.parts)))
            .register_workflow_interceptors(interruption::interceptors())
            .build();
        workflows::register(&mut options).map_err(text)?;
        Worker::new(runtime, self.client.clone(), options)
            .map_err(|error| anyhow!("the worker did not start: {error}"))
    }

    async fn webhooks(&self) -> anyhow::Result<Option<Listening>> {
        let (Some(listen), Some(webhook)) = (self.config.webhooks.listen, &self.webhook) else {
            return Ok(None);
        };
        let webhooks = Webhooks {
            listen,
            webhook: Arc::clone(webhook),
            ledger: self.parts.ledger.clone(),
            client: self.client.clone(),
            rules: self.parts.rules.clone(),
            metrics: Arc::clone(&self.parts.metrics),
        };
        webhooks.start().await.map(Some)
    }

    fn exposition(&self, engine: Option<EngineMetrics>) -> Exposition {
        Exposition {
            metrics: Arc::clone(&self.parts.metrics),
            ledger: self.parts.ledger.clone(),
            campaign: self.config.campaign.name.clone(),
            escalate_after: self.parts.rules.unknown.escalate_after,
            listening: Arc::clone(&self.parts.listening),
            places: self.config.worker.listening,
            drain: self.drain.subscribe(),
            engine,
            newest: Newest::default(),
        }
    }

    fn http(&self, exposition: &Arc<Exposition>, watch: Arc<Watch>) -> Http {
        Http {
            desk: Arc::clone(&self.desk),
            drain: self.drain.subscribe(),
            exposition: Arc::clone(exposition),
            watch,
        }
    }
}

/// Waits for the end, unless the worker has ended by itself.
async fn ending_or_done(ending: impl Future<Output = ()>, mut drain: watch::Receiver<bool>) {
    tokio::pin!(ending);
    tokio::select! {
        () = &mut ending => {}
        // The worker failed before anybody asked it to stop.
        _ = async { drain.wait_for(|drain| *drain).await.map(|_| ()) } => { ending.await; }
    }
}

/// The addresses that an operator sees.
#[must_use]
pub fn health_url(listen: SocketAddr) -> String {
    format!("http://{listen}/healthz")
}

fn text(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
