//! The checks that connect to something.

use super::{Line, bounded};
use crate::assemble;
use crate::cli::{Exit, UsageError};
use crate::commands::schedule_differs;
use crate::config::{Config, Secrets};
use crate::engine::connection::namespace;
use crate::engine::{EngineError, schedule, search_attributes};
use crate::http::access::Access;
use anyhow::anyhow;
use digest_activities::ledger::{Ledger, LedgerError};
use digest_activities::message::{RenderInput, Rendered, Templates};
use digest_activities::source::{Customer, Parameters, Source, SourceError};
use digest_workflows::activities::LedgerRef;
use digest_workflows::customer::CustomerInput;
use digest_workflows::operation::Period;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{Client, NamespacedClient as _, WorkflowListOptions};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetWorkflowExecutionHistoryRequest;

/// How long a server that holds the address of the health checks may take to say what it is.
const HEALTH: Duration = Duration::from_secs(3);

/// What the checks go by.
pub(super) struct Connections<'a> {
    pub config: &'a Config,
    pub secrets: &'a Secrets,
}

impl Connections<'_> {
    /// The source; and the templates, with the first customer's data if there is one.
    pub(super) async fn source_and_templates(&self) -> Vec<Line> {
        let templates = assemble::templates(self.config, self.secrets);
        let late = |detail| (Line::problem("source", Exit::Failed, detail), None);
        let (source, first) = bounded(Box::pin(self.source()), late).await;
        let templates = match templates {
            Ok(templates) => of_templates(&templates, first),
            Err(error) => Line::problem("templates", Exit::Usage, crate::output::paragraph(&error)),
        };
        vec![templates, source]
    }

    async fn source(&self) -> (Line, Option<First>) {
        match self.ask_source().await {
            Ok((detail, first)) => (Line::ok("source", detail), first),
            Err(error) => {
                let is_away = error.chain().any(|cause| {
                    cause.downcast_ref::<SourceError>().is_some_and(SourceError::is_temporary)
                });
                let exit = if is_away { Exit::Failed } else { Exit::Usage };
                (Line::problem("source", exit, crate::output::paragraph(&error)), None)
            }
        }
    }

    /// Asks the source what the run of the present period would select now.
    async fn ask_source(&self) -> anyhow::Result<(String, Option<First>)> {
        let source = assemble::source(self.config, self.secrets)?;
        let described = source.check().await?;
        let calendar = self.config.calendar()?;
        let now = Timestamp::now();
        let period = Period::of(now, calendar.zone());
        let Ok((period_start, period_end)) = calendar.window(period) else {
            return Ok((format!("{}; the cron has no tick in {period}", described.database), None));
        };
        let parameters = Parameters {
            campaign: &self.config.campaign.name,
            period,
            selected_at: now,
            period_start,
            period_end: period_end.min(now),
        };
        let count = source.count(&parameters).await?;
        let page = source.customers_page(&parameters, None, 1).await?;
        let unusable: u64 = page.faults.iter().map(|fault| fault.rows).sum();
        let first = match page.customers.into_iter().next() {
            Some(customer) => First::read(&source, &parameters, customer).await?,
            None => None,
        };
        let mut detail = format!(
            "{}; the run of {period} would select {} customers now",
            described.database,
            count.saturating_sub(unusable)
        );
        if unusable > 0 {
            detail.push_str(&format!(", and leave out {unusable} rows without a usable id"));
        }
        if count == 0 {
            detail.push_str(" and hold, because the selection is empty");
        }
        Ok((detail, first))
    }

    /// The ledger, the engine, and whether they belong together.
    pub(super) async fn ledger_and_engine(&self) -> Vec<Line> {
        let late = |detail| (Line::problem("ledger", Exit::Failed, detail), None);
        let ledger = bounded(Box::pin(self.ledger()), late);
        let late = |detail| (vec![Line::problem("engine", Exit::Failed, detail)], None);
        let engine = bounded(Box::pin(self.engine()), late);
        let ((mut ledger_line, identity), (lines, running)) = tokio::join!(ledger, engine);
        // An open workflow of this campaign knows on which ledger it was started.
        if let (Some(found), Some(expected)) = (identity, running)
            && found != expected
        {
            let error = LedgerError::foreign(&found, &expected);
            ledger_line = Line::problem("ledger", Exit::Failed, error.to_string());
        }
        let mut all = vec![ledger_line];
        all.extend(lines);
        all
    }

    async fn ledger(&self) -> (Line, Option<LedgerRef>) {
        let ledger = match assemble::ledger(self.config, self.secrets).await {
            Ok(ledger) => ledger,
            Err(error) => return (Line::failed("ledger", &error), None),
        };
        let identity = ledger.identity().clone();
        let line = match of_ledger(&ledger).await {
            Ok(line) => line,
            Err(error) => Line::failed("ledger", &error.into()),
        };
        ledger.close().await;
        (line, Some(identity))
    }

    /// The engine with all that digestd needs there, and the ledger that an open workflow names.
    async fn engine(&self) -> (Vec<Line>, Option<LedgerRef>) {
        let client = match assemble::engine(self.config, false).await {
            Ok(client) => client,
            Err(error) => return (vec![Line::failed("engine", &error)], None),
        };
        let mut lines = Vec::new();
        let (verified, scheduled) = tokio::join!(
            search_attributes::verify(&client),
            schedule::show(&client, &self.config.campaign.name)
        );
        let kept = match &verified {
            Ok(Some(kept)) => {
                format!(", which keeps closed workflows for {}", crate::report::ago(*kept))
            }
            _ => String::new(),
        };
        let address = self.config.engine.address.as_deref().unwrap_or("the TEMPORAL_* settings");
        let place = format!("{address}, namespace {:?}{kept}", namespace(&client));
        lines.push(Line::ok("engine", place));
        let registered = verified.is_ok();
        lines.push(match verified {
            Ok(_) => Line::ok("search attributes", search_attributes::NAMES.join(", ")),
            Err(error) => Line::failed("search attributes", &error.into()),
        });
        lines.push(self.schedule(scheduled));
        if !registered {
            return (lines, None);
        }
        let ledger = match open_ledger(&client, &self.config.campaign.name).await {
            Ok(ledger) => ledger,
            Err(error) => {
                lines.push(Line::failed("open workflows", &error));
                None
            }
        };
        (lines, ledger)
    }

    fn schedule(&self, shown: Result<schedule::Shown, EngineError>) -> Line {
        const NAME: &str = "schedule";
        let shown = match shown {
            Ok(shown) => shown,
            Err(error) => return Line::failed(NAME, &error.into()),
        };
        if let Some(difference) = schedule_differs(self.config, &shown) {
            return Line::problem(NAME, Exit::Failed, difference);
        }
        let state = if shown.paused {
            "paused, so no week runs by itself; `digestd schedule resume` starts it"
        } else {
            "running"
        };
        Line::ok(NAME, format!("{}: {state}", shown.id))
    }

    pub(super) async fn provider(&self) -> Line {
        const NAME: &str = "provider";
        let kind = self.config.provider.kind.name();
        let asking = async {
            match assemble::provider_to_check(self.config, self.secrets).await {
                Ok(None) => {
                    Line::ok(NAME, format!("{kind}, inside the worker: no real message leaves"))
                }
                Ok(Some(provider)) => match provider.check().await {
                    Ok(found) => Line::ok(NAME, format!("{kind}: {found}")),
                    Err(problem) => Line::problem(NAME, Exit::Failed, format!("{kind}: {problem}")),
                },
                Err(error) => Line::problem(NAME, Exit::Usage, crate::output::paragraph(&error)),
            }
        };
        bounded(Box::pin(asking), |detail| {
            Line::problem(NAME, Exit::Failed, format!("{kind}: {detail}"))
        })
        .await
    }

    /// Whether the worker can listen; one that runs already holds the address itself.
    pub(super) async fn http(&self) -> Line {
        const NAME: &str = "http";
        let listen = self.config.http.listen;
        if let Err(UsageError(problem)) = Access::new(self.config, self.secrets) {
            return Line::problem(NAME, Exit::Usage, problem);
        }
        let Err(error) = tokio::net::TcpListener::bind(listen).await else {
            return Line::ok(NAME, format!("{listen} is free"));
        };
        if is_worker(listen).await {
            return Line::ok(NAME, format!("{listen}, where a worker answers already"));
        }
        let cure = "set [http] listen to a free address of this machine";
        Line::problem(NAME, Exit::Failed, format!("cannot listen on {listen}: {error}; {cure}"))
    }

    /// Whether webhooks can be verified and listened for; `None` where they are off.
    pub(super) async fn webhooks(&self) -> Option<Line> {
        const NAME: &str = "webhooks";
        let listen = self.config.webhooks.listen?;
        let webhook = match assemble::webhook(self.config, self.secrets) {
            Ok(webhook) => webhook?,
            Err(error) => {
                let detail = crate::output::paragraph(&error);
                return Some(Line::problem(NAME, Exit::Usage, detail));
            }
        };
        let path = format!("POST /webhooks/{}", webhook.kind());
        let Err(error) = tokio::net::TcpListener::bind(listen).await else {
            return Some(Line::ok(NAME, format!("{listen} is free, for {path}")));
        };
        if is_worker(self.config.http.listen).await {
            return Some(Line::ok(NAME, format!("{listen}, where a worker takes {path}")));
        }
        let cure = "set [webhooks] listen to a free address of this machine";
        let detail = format!("cannot listen on {listen}: {error}; {cure}");
        Some(Line::problem(NAME, Exit::Failed, detail))
    }
}

/// The first customer, as a message is rendered for them; none whose rows cannot be carried.
struct First {
    customer: Customer,
    rows: Vec<Value>,
    selected_at: Timestamp,
}

impl First {
    async fn read(
        source: &Source,
        parameters: &Parameters<'_>,
        customer: Customer,
    ) -> Result<Option<Self>, SourceError> {
        let ids = std::slice::from_ref(&customer.id);
        let mut rows = source.rows_page(parameters, ids).await?;
        let rows = rows.remove(&customer.id).unwrap_or_else(|| Ok(Vec::new()));
        let Ok(rows) = rows else { return Ok(None) };
        let rows = rows.into_iter().map(Value::Object).collect();
        Ok(Some(Self { customer, rows, selected_at: parameters.selected_at }))
    }
}

fn of_templates(templates: &Templates, first: Option<First>) -> Line {
    const NAME: &str = "templates";
    let Some(first) = first else {
        return Line::ok(NAME, "they parse; there is no customer to render one for");
    };
    let key = &first.customer.key;
    let input = RenderInput {
        key,
        customer: first.customer.data.reveal(),
        rows: &first.rows,
        selected_at: first.selected_at,
    };
    match templates.render(&input) {
        Ok(Rendered::Message(message)) => {
            let length = message.length().map(|length| format!(": {length}")).unwrap_or_default();
            Line::ok(NAME, format!("rendered for {key}{length}"))
        }
        Ok(Rendered::NothingToSend) => {
            Line::ok(NAME, format!("they parse; {key} has no rows and gets nothing"))
        }
        Err(failure) => Line::problem(
            NAME,
            Exit::Usage,
            format!(
                "{key} would end as a dead letter: {failure}; look at it with `digestd preview \
                 --customer {}`",
                key.customer_id()
            ),
        ),
    }
}

async fn of_ledger(ledger: &Ledger) -> Result<Line, LedgerError> {
    let warnings = ledger.warnings().await?;
    if !warnings.is_empty() {
        return Ok(Line::problem("ledger", Exit::Failed, warnings.join("; ")));
    }
    let counter = ledger.counter().await?;
    let identity = ledger.identity();
    let mut detail =
        format!("{} (epoch {}), {counter} decisions on record", identity.id, identity.epoch);
    let faulty = ledger.faulty_events().await?;
    if faulty > 0 {
        detail.push_str(&format!(
            "; {faulty} events of the provider could not be told to an operation and are kept, with \
             the reason in the column fault of provider_events"
        ));
    }
    Ok(Line::ok("ledger", detail))
}

/// The ledger that the newest open operation of the campaign was started on.
async fn open_ledger(client: &Client, campaign: &str) -> anyhow::Result<Option<LedgerRef>> {
    let query = format!(
        "WorkflowType = 'CustomerDigest' AND DigestCampaign = '{campaign}' AND \
         ExecutionStatus = 'Running'"
    );
    let options = WorkflowListOptions::builder().limit(1).build();
    let mut list = Box::pin(client.list_workflows(query, options));
    let Some(workflow) = list.next().await.transpose()? else { return Ok(None) };
    let request = GetWorkflowExecutionHistoryRequest {
        namespace: client.namespace(),
        execution: Some(WorkflowExecution {
            workflow_id: workflow.id().to_owned(),
            run_id: workflow.run_id().to_owned(),
        }),
        maximum_page_size: 1,
        ..GetWorkflowExecutionHistoryRequest::default()
    };
    let mut service = client.clone();
    let page =
        WorkflowService::get_workflow_execution_history(&mut service, request.into_request())
            .await
            .map_err(|status| anyhow!("the engine does not give a history: {}", status.message()))?
            .into_inner();
    let started = page.history.unwrap_or_default().events.into_iter().next();
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) =
        started.and_then(|event| event.attributes)
    else {
        return Ok(None);
    };
    let payload = started.input.and_then(|input| input.payloads.into_iter().next());
    let input = payload.and_then(|p| serde_json::from_slice::<CustomerInput>(&p.data).ok());
    Ok(input.map(|input| input.ledger))
}

/// Whether what listens at `address` is a worker.
async fn is_worker(address: std::net::SocketAddr) -> bool {
    let Ok(client) = reqwest::Client::builder().timeout(HEALTH).no_proxy().build() else {
        return false;
    };
    match client.get(crate::service::health_url(address)).send().await {
        Ok(answer) if answer.status().is_success() => {
            answer.text().await.is_ok_and(|text| text == "ok\n")
        }
        _ => false,
    }
}
