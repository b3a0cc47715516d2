//! Canaries: a test message on the real path, to an address of the operator's.
//!
//! A canary has the data of a real customer and everything that a message of a run has: frozen
//! content, consent, rate, intent, evidence, a workflow. Three things are different. Its address is
//! the one given, which reaches the worker through the ledger's frozen content and is never in the
//! engine. Its campaign is `<name>-canary`, so that no run counts it, and its unsubscribe token names
//! nobody. And its cleanup removes nothing from the source, since the customer's own message is still
//! to come.

mod checks;

pub use checks::{Report, not_sent, report};

use crate::assemble;
use crate::cli::UsageError;
use crate::config::{Config, Secrets};
use crate::selected::Selected;
use crate::sweep::Sweep;
use anyhow::{Context, bail};
use digest_activities::ledger::{Actor, FrozenData, GONE_BACK, Ledger, NewCanary, Shown};
use digest_activities::message::{Redacted, RenderInput, Rendered, Templates};
use digest_workflows::operation::canary::campaign_of_canaries;
use digest_workflows::operation::key::KEY_BYTES_MAX;
use digest_workflows::operation::{FailureClass, KeyError, OperationKey, Period, Rehearsal, Rules};
use jiff::SignedDuration;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Who adds canaries and gives them up, in the audit.
const BY: &str = "digestd canary";
/// How often it looks at the ledger.
const LOOK: Duration = Duration::from_millis(250);
/// What a canary may take beside the provider's time: a worker that is busy, the rate, the ledger.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The customer whose data it has, by the id that the source has.
    pub customer: String,
    /// Where it goes.
    pub to: Redacted<String>,
    /// The period that it is rendered for; the week under way if left out.
    pub period: Option<Period>,
    /// Whether one transient and one permanent failure are rehearsed beside it.
    pub rehearse: bool,
    /// How long its end is waited for.
    pub timeout: Option<SignedDuration>,
}

/// What became of canaries.
pub struct Sent {
    /// The period that they were rendered for.
    pub period: Period,
    /// Each, with what was to become of it.
    pub canaries: Vec<(Rehearsal, Shown)>,
}

/// Sends what `request` asks for and waits until everything is at rest, or clearly comes to none.
/// What is still waiting then is given up, so that nothing is sent later.
///
/// # Errors
/// What would keep a message from being sent at all, told before anything is sent: an unusable
/// configuration, no such customer, no consent, a message that cannot be rendered, a ledger that has
/// gone back, an unreachable part.
pub async fn send(config: &Config, secrets: &Secrets, request: &Request) -> anyhow::Result<Sent> {
    config.check(secrets, jiff::Timestamp::now())?;
    let templates = assemble::templates(config, secrets)?;
    let one = Selected::read(config, secrets, request.period, &request.customer).await?;
    let ledger = assemble::ledger(config, secrets).await?;
    let client = assemble::engine(config, true).await?;
    let name = &config.campaign.name;
    if ledger.has_gone_back(name).await? {
        bail!("nothing was sent: {GONE_BACK}");
    }
    let rules = config.rules();
    let (campaign, period) = (campaign_of_canaries(name), one.period);
    let actor = Actor { by: BY, reason: Some("a newer canary") };
    ledger.give_up_canaries(&campaign, &rules, actor).await?;
    ledger.resume_canaries(&campaign, period, actor).await?;
    let rehearsals: &[Rehearsal] = if request.rehearse {
        &[Rehearsal::None, Rehearsal::Transient, Rehearsal::Permanent]
    } else {
        &[Rehearsal::None]
    };
    let now = ledger.now().await?;
    let customer = one.customer.key.customer_id();
    let keys = rehearsals
        .iter()
        .map(|rehearsal| OperationKey::canary(name, period, &customer, now, *rehearsal))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| too_long(name, error))?;
    let window = one.window;
    let data = frozen(one, &request.to, &templates, &keys)?;
    let sweep = Sweep {
        ledger: ledger.clone(),
        client,
        campaign: name.clone(),
        task_queue: config.engine.task_queue.clone(),
        rules: rules.clone(),
    };
    for key in &keys {
        let useful_for = config.campaign.useful_for;
        ledger.add_canary(&NewCanary { key, data: &data, window, useful_for }).await?;
        sweep.start(key).await.with_context(|| {
            format!(
                "{key} is in the ledger; a worker starts it within a minute of the engine's return"
            )
        })?;
    }
    let limit = request.timeout.unwrap_or_else(|| limit(&rules, request.rehearse));
    watch(&ledger, &keys, &rules, limit).await?;
    let actor = Actor { by: BY, reason: Some("not at rest in time, or held") };
    for key in ledger.give_up_canaries(&campaign, &rules, actor).await? {
        sweep.tell(&key).await;
    }
    let mut canaries = Vec::new();
    for (rehearsal, key) in rehearsals.iter().zip(&keys) {
        canaries.push((*rehearsal, ledger.show(key).await?));
    }
    ledger.close().await;
    Ok(Sent { period, canaries })
}

/// A canary's key is longer than that of the customer's message.
fn too_long(campaign: &str, error: KeyError) -> anyhow::Error {
    match error {
        KeyError::Campaign(name) => UsageError(format!(
            "the campaign {campaign:?} can have no canary, because {name:?} has more than 40 \
             characters; shorten [campaign] name before its first run"
        ))
        .into(),
        KeyError::TooLong { bytes } => UsageError(format!(
            "a canary's key would have {bytes} bytes and may have {KEY_BYTES_MAX}; name a customer \
             with a shorter id"
        ))
        .into(),
        error => error.into(),
    }
}

/// What the canaries are rendered from. Rendered here once, so that what would end as a dead letter
/// is told before anything is sent.
fn frozen(
    one: Selected,
    to: &Redacted<String>,
    templates: &Templates,
    keys: &[OperationKey],
) -> anyhow::Result<FrozenData> {
    if !one.still_wanted {
        bail!(
            "nothing was sent: still_wanted says no for this customer right now, and a canary asks \
             like any other message; name a customer who wants it"
        );
    }
    let mut customer = one.customer.data.into_inner();
    customer.insert("address".to_owned(), to.reveal().clone().into());
    let data = FrozenData { customer, rows: one.rows };
    for key in keys {
        let input = RenderInput {
            key,
            customer: &data.customer,
            rows: &data.rows,
            selected_at: one.selected_at,
        };
        match templates.render(&input) {
            Ok(Rendered::Message(_)) => {}
            Ok(Rendered::NothingToSend) => bail!(
                "nothing was sent: this customer has no rows in {} and message.when_empty is \
                 \"skip\"; name a customer with rows, or another --period",
                one.period
            ),
            Err(failure) if failure.class == FailureClass::Recipient => {
                return Err(UsageError(format!(
                    "nothing was sent: what --to names cannot be written to: {failure}; write an \
                     address of the campaign's channel"
                ))
                .into());
            }
            Err(failure) => bail!("nothing was sent: the message cannot be rendered: {failure}"),
        }
    }
    Ok(data)
}

/// How long a canary may take until it is at rest or unknown.
fn limit(rules: &Rules, rehearse: bool) -> SignedDuration {
    let retry = rules.retry(FailureClass::Transport).delay(1, 0.0);
    let attempts = rules.timeouts.timeout.saturating_mul(2).saturating_add(PATIENCE);
    if rehearse { attempts.saturating_add(retry) } else { attempts }
}

/// Waits until each is at rest or held, or `limit` is over.
async fn watch(
    ledger: &Ledger,
    keys: &[OperationKey],
    rules: &Rules,
    limit: SignedDuration,
) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::try_from(limit).unwrap_or(Duration::ZERO);
    loop {
        let mut open = false;
        for key in keys {
            match ledger.operation(key).await {
                Ok(answer) => {
                    let at_rest = answer.operation.is_at_rest(rules, answer.moment.now);
                    open |= !at_rest && !answer.moment.held;
                }
                Err(error) if error.is_temporary() => open = true,
                Err(error) => return Err(error.into()),
            }
        }
        if !open || Instant::now() >= until {
            return Ok(());
        }
        sleep(LOOK).await;
    }
}
