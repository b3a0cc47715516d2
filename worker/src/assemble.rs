//! Assembles what commands and the worker stand on, from the configuration and the environment.

use crate::config::{Config, ProviderKind, Secrets, WhenEmpty};
use crate::engine::connection::{Address, Target, connect};
use anyhow::{Context, bail};
use digest_activities::delivery::{Gatherer, Pacer};
use digest_activities::gates::{Campaign, Parts};
use digest_activities::ledger::Ledger;
use digest_activities::message::{self, MessageSettings, Templates};
use digest_activities::metrics::Metrics;
use digest_activities::provider::Provider;
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::batch::Batches;
use digest_activities::provider::mailgun::Mailgun;
use digest_activities::provider::postmark::Postmark;
use digest_activities::provider::resend::Resend;
use digest_activities::provider::sandbox::{Behaviour, Sandbox, SandboxProvider};
use digest_activities::provider::sendgrid::Sendgrid;
use digest_activities::provider::ses::{Ses, SesSettings};
use digest_activities::provider::smtp::{Credentials, Settings, Smtp};
use digest_activities::provider::twilio::{Twilio, TwilioSettings, callback};
use digest_activities::source::{Queries, Source};
use digest_activities::webhook::{
    Https, MailgunWebhook, PostmarkWebhook, ResendWebhook, SendgridWebhook, SesWebhook,
    TwilioWebhook, Webhook,
};
use digest_workflows::operation::Period;
use jiff::Timestamp;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use temporalio_client::Client;
use tokio::sync::{Semaphore, watch};

/// Connects to the ledger.
///
/// # Errors
/// A configuration or ledger error, each naming its cure.
pub async fn ledger(config: &Config, secrets: &Secrets) -> anyhow::Result<Ledger> {
    let database = config.ledger_database(secrets)?;
    Ok(Ledger::connect(database.url.reveal(), &config.ledger.schema).await?)
}

/// Connects to the engine. `search_attributes` says whether they must be registered: only `setup`,
/// which registers them, does without.
///
/// # Errors
/// An engine error, naming its cure, within seconds.
pub async fn engine(config: &Config, search_attributes: bool) -> anyhow::Result<Client> {
    let address = match &config.engine.address {
        Some(address) => Address::Given(address.clone()),
        None => Address::Environment,
    };
    let identity = format!("digestd@{}", std::process::id());
    let namespace = config.engine.namespace.clone();
    Ok(connect(&Target { address, namespace, identity, search_attributes }).await?)
}

/// Opens the source; connects when it is first asked.
///
/// # Errors
/// What is wrong with the queries' text or the URL.
pub fn source(config: &Config, secrets: &Secrets) -> anyhow::Result<Source> {
    let database = config.source_database(secrets)?;
    let queries = Queries {
        customers: config.source.customers.clone(),
        rows: config.source.rows.clone(),
        still_wanted: config.source.still_wanted.clone(),
        cleanup: config.source.cleanup.clone(),
        cleanup_max_rows: u64::from(config.source.cleanup_max_rows),
    };
    Ok(Source::open(database.url.reveal(), queries)?)
}

/// Loads and parses the templates.
///
/// # Errors
/// What is wrong with them, by file and line.
pub fn templates(config: &Config, secrets: &Secrets) -> anyhow::Result<Templates> {
    let settings = MessageSettings {
        from: config.message.from.clone(),
        subject: config.message.subject.clone(),
        text: config.message.text.clone(),
        html: config.message.html.clone(),
        unsubscribe_url: config.message.unsubscribe_url.clone(),
        when_empty: match config.message.when_empty {
            WhenEmpty::Skip => message::WhenEmpty::Skip,
            WhenEmpty::Send => message::WhenEmpty::Send,
        },
    };
    let folder = config.file.parent().map(PathBuf::from).unwrap_or_default();
    Ok(Templates::load(&settings, &folder, secrets.unsubscribe_secret.as_ref())?)
}

/// The table `[sandbox]`: where it listens and what it remembers, and how it behaves.
#[derive(Debug, Default, Deserialize)]
struct SandboxTable {
    /// Where it listens; any free port of loopback by default.
    listen: Option<SocketAddr>,
    /// The file that it remembers acceptances in, relative to the configuration.
    log: Option<PathBuf>,
}

/// A provider, and what must live as long as it.
pub struct Delivering {
    /// The adapter.
    pub provider: Arc<dyn Provider>,
    /// The sandbox in this process, where the provider is that.
    pub sandbox: Option<Sandbox>,
}

/// Makes the adapter that `[provider]` names; starts the sandbox if it is that.
///
/// # Errors
/// A setting that cannot be used.
pub async fn provider(config: &Config, secrets: &Secrets) -> anyhow::Result<Delivering> {
    match config.provider.kind {
        ProviderKind::Smtp => {
            let credentials = secrets
                .provider_username
                .clone()
                .zip(secrets.provider_password.clone())
                .map(|(username, password)| Credentials { username, password });
            let settings = Settings {
                url: config.provider.url.clone().unwrap_or_default(),
                credentials,
                timeout: config.provider.timeout,
                ehlo_name: config.provider.own.ehlo_name.clone(),
                ca_file: config.provider.ca_file.clone(),
            };
            Ok(Delivering { provider: Arc::new(Smtp::new(settings)?), sandbox: None })
        }
        ProviderKind::Sandbox => sandbox(config).await,
        kind => Ok(Delivering { provider: by_api(kind, config, secrets)?, sandbox: None }),
    }
}

/// Makes an adapter that speaks to its provider's API.
fn by_api(
    kind: ProviderKind,
    config: &Config,
    secrets: &Secrets,
) -> anyhow::Result<Arc<dyn Provider>> {
    let settings = api_settings(config, secrets);
    let own = &config.provider.own;
    Ok(match kind {
        ProviderKind::Resend => Arc::new(Resend::new(&settings)?),
        ProviderKind::Postmark => {
            Arc::new(Postmark::new(&settings, own.message_stream.as_deref())?)
        }
        ProviderKind::Sendgrid => Arc::new(Sendgrid::new(&settings, own.lookup)?),
        ProviderKind::Mailgun => Arc::new(Mailgun::new(&settings, own.domain.as_deref())?),
        ProviderKind::Ses => {
            let region = own.region.clone();
            let configuration_set = own.configuration_set.clone();
            let bulk = config.provider.batch.is_some();
            Arc::new(Ses::new(&settings, &SesSettings { region, configuration_set, bulk })?)
        }
        ProviderKind::Twilio => {
            let sender = message::fixed_sender(&config.message.from).map(str::to_owned);
            let own = TwilioSettings {
                account_sid: own.account_sid.clone(),
                sender,
                public_url: config.webhooks.public_url.clone(),
                validity: own.validity,
            };
            Arc::new(Twilio::new(&settings, &own)?)
        }
        ProviderKind::Sandbox | ProviderKind::Smtp => {
            bail!("provider.kind = {:?} has no API", kind.name())
        }
    })
}

/// The account behind an HTTP API.
fn api_settings(config: &Config, secrets: &Secrets) -> ApiSettings {
    ApiSettings {
        url: config.provider.url.clone(),
        key: secrets.provider_api_key.clone(),
        username: secrets.provider_username.clone(),
        password: secrets.provider_password.clone(),
        ca_file: config.provider.ca_file.clone(),
        sender_domain: message::sender_domain(&config.message.from),
        events: config.webhooks.listen.is_some(),
    }
}

/// How the provider of `[provider]` tells what became of messages; `None` where `[webhooks]` does
/// not listen.
///
/// # Errors
/// A provider that does not tell, or a secret that is missing.
pub fn webhook(config: &Config, secrets: &Secrets) -> anyhow::Result<Option<Arc<dyn Webhook>>> {
    if config.webhooks.listen.is_none() {
        return Ok(None);
    }
    let secrets = &secrets.webhook_secrets;
    Ok(Some(match config.provider.kind {
        ProviderKind::Resend => Arc::new(ResendWebhook::new(secrets)?),
        ProviderKind::Postmark => Arc::new(PostmarkWebhook::new(secrets)?),
        ProviderKind::Sendgrid => Arc::new(SendgridWebhook::new(secrets)?),
        ProviderKind::Mailgun => Arc::new(MailgunWebhook::new(secrets)?),
        ProviderKind::Twilio => {
            let public_url = config.webhooks.public_url.as_deref().unwrap_or_default();
            Arc::new(TwilioWebhook::new(secrets, &callback(public_url))?)
        }
        ProviderKind::Ses => {
            let fetch = Https::new(config.provider.ca_file.as_deref())?;
            Arc::new(SesWebhook::new(config.webhooks.topics.clone(), Arc::new(fetch)))
        }
        kind => bail!(
            "provider.kind = {:?} has no webhooks in this version; take out [webhooks] listen",
            kind.name()
        ),
    }))
}

/// Reads the table `[sandbox]`.
fn sandbox_table(config: &Config) -> anyhow::Result<(SandboxTable, Behaviour)> {
    let mut table = config.sandbox.clone();
    let mut own = toml::Table::new();
    for key in ["listen", "log"] {
        if let Some(value) = table.remove(key) {
            own.insert(key.to_owned(), value);
        }
    }
    let own: SandboxTable = own.try_into().context("[sandbox] cannot be read")?;
    let behaviour: Behaviour = table.try_into().context("[sandbox] cannot be read")?;
    Ok((own, behaviour))
}

async fn sandbox(config: &Config) -> anyhow::Result<Delivering> {
    let (own, behaviour) = sandbox_table(config)?;
    if let Some(url) = &config.provider.url {
        // A sandbox that somebody else runs.
        let contract = behaviour.contract;
        let provider = SandboxProvider::new(url, None, contract)?;
        return Ok(Delivering { provider: Arc::new(provider), sandbox: None });
    }
    let listen = own.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let folder = config.file.parent().map(PathBuf::from).unwrap_or_default();
    let log = own.log.map(|log| folder.join(log));
    let sandbox = Sandbox::start(behaviour, listen, log).await?;
    Ok(Delivering { provider: Arc::new(sandbox.provider()), sandbox: Some(sandbox) })
}

/// The provider as an audit asks it: about messages, sending none. `Err` with the reason, in words,
/// where it can't be asked.
///
/// # Errors
/// A setting that cannot be used, or a log that cannot be read.
pub async fn provider_to_ask(
    config: &Config,
    secrets: &Secrets,
) -> anyhow::Result<Result<Delivering, &'static str>> {
    let delivering =
        if config.provider.kind == ProviderKind::Sandbox && config.provider.url.is_none() {
            // It lives in the worker, whose process this is not.
            let (own, behaviour) = sandbox_table(config)?;
            match (own.log, own.listen.filter(|listen| listen.port() != 0)) {
                (Some(log), _) => {
                    let folder = config.file.parent().map(PathBuf::from).unwrap_or_default();
                    let sandbox = Sandbox::follow(behaviour, folder.join(log)).await?;
                    Delivering { provider: Arc::new(sandbox.provider()), sandbox: Some(sandbox) }
                }
                (None, Some(listen)) => {
                    let url = format!("http://{listen}");
                    let provider = SandboxProvider::new(&url, None, behaviour.contract)?;
                    Delivering { provider: Arc::new(provider), sandbox: None }
                }
                (None, None) => {
                    return Ok(Err("its sandbox lives in the worker and keeps no [sandbox] log"));
                }
            }
        } else {
            provider(config, secrets).await?
        };
    let lookup = delivering.provider.contract().lookup;
    if lookup.is_by_key() {
        return Ok(Ok(delivering));
    }
    Ok(Err(if lookup.is_by_content() {
        "it is asked by the message's content, which is not kept after a delivery"
    } else {
        "its contract has no look-up by key"
    }))
}

/// The provider as `digestd check` asks it; `None` for a sandbox that lives inside the worker, where
/// reading its table is all there is to check.
///
/// # Errors
/// A setting that cannot be used.
pub async fn provider_to_check(
    config: &Config,
    secrets: &Secrets,
) -> anyhow::Result<Option<Arc<dyn Provider>>> {
    if config.provider.kind == ProviderKind::Sandbox && config.provider.url.is_none() {
        sandbox_table(config)?;
        return Ok(None);
    }
    Ok(Some(provider(config, secrets).await?.provider))
}

/// Everything that the gates stand on.
///
/// # Errors
/// The first part that cannot be had.
pub async fn parts(
    config: &Config,
    secrets: &Secrets,
    provider: Arc<dyn Provider>,
    draining: watch::Receiver<bool>,
) -> anyhow::Result<Parts> {
    config.check(secrets, Timestamp::now())?;
    let account = provider.provider_ref();
    let listening = usize::try_from(config.worker.listening)?;
    let gatherer = config.provider.batch.map(|most| {
        let rate = config.provider.rate_per_second;
        let counted = provider.batches().is_some_and(Batches::counts_messages);
        Gatherer::new(if counted { within(most, rate) } else { most } as usize)
    });
    let metrics = Metrics::new(&config.campaign.name, &account.kind)
        .context("the metrics cannot be counted, which is a defect of digestd")?;
    Ok(Parts {
        ledger: ledger(config, secrets).await?,
        source: source(config, secrets)?,
        templates: templates(config, secrets)?,
        provider,
        campaign: Campaign {
            name: config.campaign.name.clone(),
            late_start: config.campaign.late_start,
            useful_for: config.campaign.useful_for,
            page_size: config.dispatch.page_size,
            in_flight: config.dispatch.in_flight,
        },
        calendar: config.calendar()?,
        rules: config.rules(),
        pacer: Pacer::new(
            format!("{}:{}", account.kind, account.account),
            Some(config.provider.rate_per_second),
        ),
        listening: Arc::new(Semaphore::new(listening)),
        gatherer,
        draining,
        metrics: Arc::new(metrics),
    })
}

/// At most `most` messages in a request, and no more than a second's at `rate`, where each counts.
fn within(most: u32, rate: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of messages per second, above 0 and up to 10000"
    )]
    let a_second = rate as u32;
    most.min(a_second).max(1)
}

/// The period asked for, or that of the latest run.
///
/// # Errors
/// When there is none yet.
pub async fn period(
    ledger: &Ledger,
    campaign: &str,
    asked: Option<Period>,
) -> anyhow::Result<Period> {
    if let Some(period) = asked {
        return Ok(period);
    }
    match ledger.latest_run(campaign).await? {
        Some(run) => Ok(run.period),
        None => bail!(
            "the campaign {campaign:?} has no run yet; start one with `digestd run --period …`"
        ),
    }
}
