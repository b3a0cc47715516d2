//! One customer as a run would select them, for the commands that are about one.

use crate::assemble;
use crate::config::{Config, Secrets};
use anyhow::{anyhow, bail};
use digest_activities::source::{Customer, Parameters};
use digest_workflows::operation::Period;
use jiff::Timestamp;
use serde_json::Value;

/// A customer with everything that their message is rendered from, as the source has it now.
pub struct Selected {
    /// The customer.
    pub customer: Customer,
    /// The customer's rows.
    pub rows: Vec<Value>,
    /// What the consent query says right now.
    pub still_wanted: bool,
    /// The period that they were selected for.
    pub period: Period,
    /// The half-open window of the rows. Ahead of the period's tick it ends now.
    pub window: (Timestamp, Timestamp),
    /// When.
    pub selected_at: Timestamp,
}

impl Selected {
    /// Selects the customer with this `id`, for `period` or else for the week under way.
    ///
    /// # Errors
    /// An unreachable source, no such customer, or one that cannot be selected.
    pub async fn read(
        config: &Config,
        secrets: &Secrets,
        period: Option<Period>,
        id: &str,
    ) -> anyhow::Result<Self> {
        let calendar = config.calendar()?;
        let now = Timestamp::now();
        let period = period.unwrap_or_else(|| Period::of(now, calendar.zone()));
        let source = assemble::source(config, secrets)?;
        let (period_start, period_end) = calendar.window(period)?;
        // Ahead of its tick, a period shows what there is.
        let period_end = period_end.min(now);
        let campaign = &config.campaign.name;
        let parameters =
            Parameters { campaign, period, selected_at: now, period_start, period_end };
        let id = source.customer_id(&parameters, id).await?;
        let page = source.customer(&parameters, &id).await?;
        let customer = match (page.customers.into_iter().next(), page.faults.first()) {
            (Some(customer), _) => customer,
            (None, Some(fault)) => {
                bail!("this customer cannot be selected: {}; it would get no message", fault.reason)
            }
            (None, None) => bail!(
                "the query [source] customers returns no row with this customer_id for {period}; is \
                 the id written as the source has it, and does the customer want the message?"
            ),
        };
        let rows = source.rows_page(&parameters, std::slice::from_ref(&id)).await?.remove(&id);
        let rows = rows.unwrap_or_else(|| Ok(Vec::new())).map_err(|reason| {
            anyhow!("this customer cannot be selected: {reason}; it would get no message")
        })?;
        let still_wanted = source.still_wanted(&parameters, &customer.key).await?;
        Ok(Self {
            customer,
            rows: rows.into_iter().map(Value::Object).collect(),
            still_wanted,
            period,
            window: (period_start, period_end),
            selected_at: now,
        })
    }
}
