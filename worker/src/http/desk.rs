//! The desk: what API and console stand on. Decisions are recorded in the ledger, where they count at
//! once, and the workflows are told in the background: the worker's sweep tells whoever was missed.

use super::access::Access;
use super::api::publish::unreadable;
use super::problem::Problem;
use crate::assemble;
use crate::cli::UsageError;
use crate::config::{Config, Secrets};
use crate::decide::replay::Anew;
use crate::retention::campaigns;
use crate::sweep::Sweep;
use crate::tell::Teller;
use crate::wake;
use axum::http::StatusCode;
use digest_activities::gates::parameters;
use digest_activities::ledger::{FrozenData, Ledger};
use digest_activities::refreeze::{RefreezeError, data_of};
use digest_activities::source::Source;
use digest_workflows::operation::{OperationKey, Period, Rules, State};
use serde_json::{Map, Value};
use std::sync::Arc;
use temporalio_client::Client;
use tokio::sync::OnceCell;

/// What API and console stand on.
pub struct Desk {
    /// The configuration of this worker: one campaign.
    pub config: Config,
    /// Where everything is read and decided.
    pub ledger: Ledger,
    /// The rules in force.
    pub rules: Rules,
    /// Who may ask.
    pub access: Access,
    secrets: Secrets,
    engine: Option<Client>,
    source: OnceCell<Source>,
}

impl Desk {
    /// A desk on this worker's parts. Without an `engine`, workflows are told by the sweep alone.
    ///
    /// # Errors
    /// Those of [`Access::new`].
    pub fn new(
        config: Config,
        secrets: &Secrets,
        ledger: Ledger,
        engine: Option<Client>,
    ) -> Result<Self, UsageError> {
        let access = Access::new(&config, secrets)?;
        let rules = config.rules();
        Ok(Self {
            config,
            ledger,
            rules,
            access,
            secrets: secrets.clone(),
            engine,
            source: OnceCell::new(),
        })
    }

    /// The campaign's name.
    #[must_use]
    pub fn campaign(&self) -> &str {
        &self.config.campaign.name
    }

    /// What messages are rendered anew from.
    ///
    /// # Errors
    /// A problem with a URL, a query or a template, which only its owner can solve.
    pub fn anew(&self) -> Result<Anew, Problem> {
        Anew::load(&self.config, &self.secrets).map_err(|error| failed(&error))
    }

    /// What the source says today of the customer of `key`, by the campaign's own queries; with `rows`
    /// in the place of those that it has.
    ///
    /// # Errors
    /// A problem with the customer, the source, or the run, which must be known.
    pub async fn customer(
        &self,
        key: &OperationKey,
        rows: Option<Vec<Map<String, Value>>>,
    ) -> Result<FrozenData, Problem> {
        let open = async || assemble::source(&self.config, &self.secrets);
        let source = self.source.get_or_try_init(open).await.map_err(|error| failed(&error))?;
        let run = self.ledger.run(key.campaign(), key.period()).await?;
        let read = async {
            let parameters = run.as_ref().and_then(parameters).ok_or(RefreezeError::NoWindow)?;
            data_of(source, &parameters, key).await
        };
        let data = read.await.map_err(unreadable)?;
        Ok(match rows {
            Some(rows) => {
                FrozenData { rows: rows.into_iter().map(Value::Object).collect(), ..data }
            }
            None => data,
        })
    }

    /// The keys of every operation with data of `customer`: the campaign's, and its canaries'.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn keys_of(&self, customer: &str) -> Result<Vec<OperationKey>, Problem> {
        let mut keys = Vec::new();
        // No id holds it, and PostgreSQL takes it in no text.
        if customer.contains('\0') {
            return Ok(keys);
        }
        for campaign in campaigns(self.campaign()) {
            keys.extend(self.ledger.keys_of(&campaign, customer).await?);
        }
        Ok(keys)
    }

    /// Wakes the workflows of operations about which something was decided.
    pub fn wake(&self, operations: Vec<(OperationKey, State)>) {
        let Some(client) = self.engine.clone() else { return };
        if operations.is_empty() {
            return;
        }
        let sweep = Sweep {
            ledger: self.ledger.clone(),
            client,
            campaign: self.campaign().to_owned(),
            task_queue: self.config.engine.task_queue.clone(),
            rules: self.rules.clone(),
        };
        tokio::spawn(async move {
            if let Err(error) = wake::operations(&sweep, &operations).await {
                later(&error);
            }
        });
    }

    /// Tells the run of `period` to look at the ledger. Its operations are told by the sweep, which
    /// sees within seconds that a run was resumed or cancelled.
    pub fn tell_run(&self, period: Period) {
        let Some(client) = self.engine.clone() else { return };
        let teller = Teller { client, campaign: self.campaign().to_owned() };
        tokio::spawn(async move {
            if let Err(error) = teller.run(period).await {
                later(&error);
            }
        });
    }
}

/// Shared by every request.
pub type Shared = Arc<Desk>;

fn later(error: &anyhow::Error) {
    let error = format!("{error:#}");
    tracing::warn!(error, "a decision is recorded, and the sweep will tell the workflows of it");
}

/// The problem of a request that failed by no fault of its own.
#[must_use]
pub(super) fn failed(error: &anyhow::Error) -> Problem {
    tracing::error!(error = format!("{error:#}"), "a request failed");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, crate::output::paragraph(error))
}
