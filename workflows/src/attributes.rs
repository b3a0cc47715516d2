//! The search attributes of every digestd workflow, and the plain words beside them.

use crate::operation::{OperationKey, Period};
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributes};

/// The period, as `2026-W42`.
pub const PERIOD: SearchAttributeKey<String> = SearchAttributeKey::keyword("DigestPeriod");
/// The campaign's name.
pub const CAMPAIGN: SearchAttributeKey<String> = SearchAttributeKey::keyword("DigestCampaign");
/// `active` at the start, and upserted only off the happy path: completed and `active` means
/// cleaned.
pub const STATE: SearchAttributeKey<String> = SearchAttributeKey::keyword("DigestState");
/// What [`STATE`] says as long as nothing unusual happens.
pub const ACTIVE: &str = "active";

/// The names that `digestd setup` registers, all of type Keyword.
pub const NAMES: [&str; 3] = ["DigestPeriod", "DigestCampaign", "DigestState"];

/// The attributes of a run's, page's or schedule's workflow.
#[must_use]
pub fn of_run(campaign: &str, period: Period) -> SearchAttributes {
    SearchAttributes::new([
        PERIOD.value_set(period.to_string()),
        CAMPAIGN.value_set(campaign.to_owned()),
        STATE.value_set(ACTIVE.to_owned()),
    ])
}

/// The attributes that one operation's workflow starts with.
#[must_use]
pub fn of_operation(key: &OperationKey) -> SearchAttributes {
    of_run(key.campaign(), key.period())
}
