//! The run from its start to its report, and what happens after it, as far as somebody watches.

use super::cast::{CAMPAIGN, Part};
use super::folder::Folder;
use super::report::{Report, Shell};
use super::story::{Story, Transition};
use super::view::{self, View};
use super::{Options, Stage, shop};
use crate::commands;
use crate::output;
use anyhow::Context as _;
use digest_activities::ledger::{Actor, LedgerError, RunState, RunStatus};
use digest_workflows::operation::State;
use digest_workflows::run::DigestRun;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use temporalio_client::WorkflowSignalOptions;

/// How often the ledger is looked at.
const LOOK: Duration = Duration::from_millis(150);

/// More new decisions than this are not told one by one.
const DECISIONS_MAX: u32 = 20_000;

/// The demo as it is watched.
pub(super) struct Show<'a> {
    stage: &'a Stage,
    view: View,
    options: Options,
    begun: Instant,
    config: PathBuf,
    shop: PathBuf,
    provider_log: PathBuf,
    story: Story,
    /// The last decision that was read.
    seen: i64,
    /// How the run stood in the report.
    reported: Option<RunStatus>,
}

impl<'a> Show<'a> {
    pub(super) fn new(
        stage: &'a Stage,
        folder: &Folder,
        view: View,
        options: Options,
        begun: Instant,
    ) -> Self {
        Self {
            stage,
            view,
            options,
            begun,
            config: folder.config(),
            shop: folder.shop(),
            provider_log: folder.provider_log(),
            story: Story::default(),
            seen: 0,
            reported: None,
        }
    }

    /// Runs until the report with `--exit`, else until it is dropped.
    ///
    /// # Errors
    /// What did not answer.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        self.start().await?;
        let status = self.watch().await?;
        self.view.close();
        self.report(&status).await?;
        self.reported = Some(status);
        if !self.options.exit {
            self.stay().await?;
        }
        Ok(())
    }

    /// Stops drawing; tells what was reported.
    pub(super) fn end(mut self) -> Option<RunStatus> {
        self.view.close();
        self.reported
    }

    /// Starts the run, held until somebody has opted out of the selection that it freezes.
    async fn start(&self) -> anyhow::Result<()> {
        let stage = self.stage;
        if stage.cast.who(Part::OptsOut).is_some() {
            let actor = Actor { by: "demo", reason: Some("a customer opts out after the freeze") };
            let because = "a customer opts out after the freeze";
            stage.ledger.hold(CAMPAIGN, stage.period, because, actor).await?;
        }
        commands::run::start(&stage.client, &stage.config, stage.period).await?;
        Ok(())
    }

    /// Watches until every message is at rest and the run is closed.
    async fn watch(&mut self) -> anyhow::Result<RunStatus> {
        let mut opted_out = self.stage.cast.who(Part::OptsOut).is_none();
        loop {
            let looked = Instant::now();
            if !opted_out && self.is_frozen().await? {
                self.opt_out().await?;
                opted_out = true;
            }
            let new = self.news().await?;
            match self.stage.ledger.status(CAMPAIGN, self.stage.period).await {
                Ok(status) => {
                    self.view.update(&status, &new, &self.story);
                    if status.state == RunState::Closed.name() {
                        return Ok(status);
                    }
                }
                // The worker has not opened it yet.
                Err(LedgerError::NoSuchRun { .. }) => {}
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error.into()),
            }
            // However large the demo, looking at it takes a fraction of the time.
            tokio::time::sleep(LOOK.max(looked.elapsed() * 3)).await;
        }
    }

    async fn is_frozen(&self) -> anyhow::Result<bool> {
        let run = self.stage.ledger.run(CAMPAIGN, self.stage.period).await?;
        Ok(run.is_some_and(|run| run.state == RunState::Frozen))
    }

    /// Somebody who is selected opts out; then the run goes on.
    async fn opt_out(&self) -> anyhow::Result<()> {
        let stage = self.stage;
        if let Some(customer) = stage.cast.who(Part::OptsOut) {
            shop::opt_out(&self.shop, &customer).await?;
        }
        let id = digest_workflows::run_id(CAMPAIGN, stage.period);
        let run = stage.client.get_workflow_handle::<DigestRun>(id);
        let words = serde_json::json!({ "by": "demo", "reason": "the selection is frozen" });
        run.signal(DigestRun::resume, words.into(), WorkflowSignalOptions::default())
            .await
            .context("the run could not be told to go on")
    }

    /// The transitions since the last look.
    async fn news(&mut self) -> anyhow::Result<Vec<Transition>> {
        let ledger = &self.stage.ledger;
        let lines =
            match ledger.decisions(CAMPAIGN, self.stage.period, self.seen, DECISIONS_MAX).await {
                Ok(lines) => lines,
                Err(error) if error.is_temporary() => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            };
        if let Some(last) = lines.last() {
            if self.seen == 0 {
                let after = self.begun.elapsed().as_secs_f64();
                tracing::info!("the first decision was seen after {after:.1} s");
            }
            self.seen = last.id;
        }
        let new: Vec<Transition> = lines.iter().filter_map(Transition::read).collect();
        for transition in &new {
            self.story.tell(transition);
        }
        Ok(new)
    }

    async fn report(&self, status: &RunStatus) -> anyhow::Result<()> {
        let stage = self.stage;
        let waiting =
            stage.ledger.list(CAMPAIGN, State::Unknown, Some(stage.period), None, 1).await?;
        let accepted = match stage.provider.witness().await {
            Ok(witness) => Some((witness.acceptances.len(), witness.duplicates().len())),
            Err(why) => {
                tracing::warn!(why, "the provider did not tell what it accepted");
                None
            }
        };
        let report = Report {
            status,
            took: self.begun.elapsed(),
            story: &self.story,
            cast: stage.cast,
            accepted,
            waiting: waiting.operations.first(),
            shell: Shell::new(&self.config, &stage.binary, &stage.config.engine),
            provider_log: &self.provider_log,
            stays: !self.options.exit,
        };
        let text = report.to_string();
        // With JSON, standard output has just that.
        if self.options.json {
            output::say(&text)?;
        } else {
            output::print(&text)?;
        }
        Ok(())
    }

    /// Tells what is still decided, as long as the demo is up.
    async fn stay(&mut self) -> anyhow::Result<()> {
        let mut doubt = true;
        loop {
            tokio::time::sleep(LOOK * 3).await;
            let new = self.news().await?;
            for transition in &new {
                output::print(&view::line(transition, output::colours(&std::io::stdout())))?;
            }
            if new.is_empty() || !doubt {
                continue;
            }
            let status = self.stage.ledger.status(CAMPAIGN, self.stage.period).await?;
            if status.unknown == 0 && status.missing_count == 0 {
                doubt = false;
                output::print("nothing is in doubt any more; Ctrl-C ends the demo")?;
            }
        }
    }
}
