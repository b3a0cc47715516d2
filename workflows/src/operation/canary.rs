//! Canaries: test messages on the real path, under a campaign of their own.
//!
//! The canary of campaign `digest` is an operation of campaign `digest-canary`, so that no count,
//! audit or metric of `digest` has it. Its key is
//! `digest-canary:2026-W42:customer-1842~20261014T081502117`: behind the customer's id stands when
//! it was asked for, so that the same customer can be asked about again, each time under a new key.
//! A rehearsal writes behind that what is to fail: `…117-transient` or `…117-permanent`.
//!
//! What `digest-canary` is to `digest` is decided here alone. No configuration may give a campaign a
//! name that ends like that.

use super::class::{Failure, FailureClass};
use super::key::{KeyError, OperationKey};
use super::period::Period;
use jiff::{Timestamp, tz::TimeZone};

/// What a canary's campaign has behind the name of the campaign that it is for.
const ENDING: &str = "-canary";
/// What stands between the customer's id and what makes the key another one.
const MARK: char = '~';
/// What a failure on purpose is recorded as.
const ON_PURPOSE: &str = "forced by a canary";

/// What is to become of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// It is sent like any other message.
    None,
    /// Its first attempt is refused for now, and the next one is sent.
    Transient,
    /// It is refused for good, and never reaches the provider.
    Permanent,
}

impl Rehearsal {
    const fn ending(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Transient => "-transient",
            Self::Permanent => "-permanent",
        }
    }
}

/// The campaign of the canaries of `campaign`.
#[must_use]
pub fn campaign_of_canaries(campaign: &str) -> String {
    format!("{campaign}{ENDING}")
}

/// The campaign that the canaries of `campaign` are for; `None` where it is not one of canaries.
#[must_use]
pub fn tested_campaign(campaign: &str) -> Option<&str> {
    campaign.strip_suffix(ENDING)
}

impl OperationKey {
    /// The key of a canary of `campaign` with the data of `customer_id`, asked for at `at`.
    ///
    /// # Errors
    /// As [`OperationKey::new`], whose bounds on length a canary reaches sooner.
    pub fn canary(
        campaign: &str,
        period: Period,
        customer_id: &str,
        at: Timestamp,
        rehearsal: Rehearsal,
    ) -> Result<Self, KeyError> {
        let at = at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%S%3f");
        let id = format!("{customer_id}{MARK}{at}{}", rehearsal.ending());
        // An empty id is refused as such, not hidden behind the mark.
        Self::new(campaign, period, customer_id)?;
        Self::new(&campaign_of_canaries(campaign), period, &id)
    }

    /// Whether this is a canary of `campaign`.
    #[must_use]
    pub fn is_canary_of(&self, campaign: &str) -> bool {
        tested_campaign(self.campaign()) == Some(campaign)
    }

    /// Whether this is a canary of any campaign.
    #[must_use]
    pub fn is_canary(&self) -> bool {
        tested_campaign(self.campaign()).is_some()
    }

    /// The id under which the source knows the customer: for a canary that of the customer whose data
    /// it has.
    #[must_use]
    pub fn source_customer_id(&self) -> String {
        let id = self.customer_id();
        match id.rsplit_once(MARK) {
            Some((customer, _)) if self.is_canary() => customer.to_owned(),
            _ => id,
        }
    }

    /// The key of the customer's own message: for a canary, of the one that it is a test of. Consent is
    /// asked about that one.
    #[must_use]
    pub fn tested(&self) -> Self {
        tested_campaign(self.campaign())
            .and_then(|name| Self::new(name, self.period(), &self.source_customer_id()).ok())
            .unwrap_or_else(|| self.clone())
    }

    /// What is to become of it, if it is a canary.
    #[must_use]
    pub fn rehearsal(&self) -> Rehearsal {
        if !self.is_canary() {
            return Rehearsal::None;
        }
        let id = self.customer_id();
        [Rehearsal::Transient, Rehearsal::Permanent]
            .into_iter()
            .find(|rehearsal| id.ends_with(rehearsal.ending()))
            .unwrap_or(Rehearsal::None)
    }

    /// The failure that the attempt (`generation`, `ordinal`) meets on purpose in the place of the
    /// provider; `None` for every message that is not a rehearsal.
    #[must_use]
    pub fn rehearsed_failure(&self, generation: u32, ordinal: u32) -> Option<Failure> {
        match self.rehearsal() {
            Rehearsal::Transient if (generation, ordinal) == (1, 1) => {
                Some(Failure::new(FailureClass::Transport, ON_PURPOSE))
            }
            Rehearsal::Permanent => Some(Failure::new(FailureClass::Rejected, ON_PURPOSE)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(customer: &str, rehearsal: Rehearsal) -> OperationKey {
        let period = Period::parse("2026-W42").unwrap();
        let at = "2026-10-14T08:15:02.117Z".parse().unwrap();
        OperationKey::canary("digest", period, customer, at, rehearsal).unwrap()
    }

    #[test]
    fn a_canary_is_of_a_campaign_of_its_own_and_knows_its_customer() {
        for id in ["customer-1842", "a~b", "grüße ~1", "x-transient"] {
            let key = canary(id, Rehearsal::None);
            assert_eq!(key.campaign(), "digest-canary");
            assert!(key.is_canary() && key.is_canary_of("digest") && !key.is_canary_of("dig"));
            assert_eq!(key.source_customer_id(), id);
            let own = OperationKey::new("digest", key.period(), id).unwrap();
            assert_eq!((key.tested(), own.tested()), (own.clone(), own));
            assert_eq!(OperationKey::parse(&key.to_string()).unwrap(), key);
            assert_eq!(key.rehearsal(), Rehearsal::None);
        }
        let key = canary("customer-1842", Rehearsal::None).to_string();
        assert_eq!(key, "digest-canary:2026-W42:customer-1842~20261014T081502117");
    }

    #[test]
    fn any_other_key_is_what_it_was() {
        let period = Period::parse("2026-W42").unwrap();
        let key = OperationKey::new("digest", period, "a~20261014T081502117-permanent").unwrap();
        assert!(!key.is_canary());
        assert_eq!(key.source_customer_id(), key.customer_id());
        assert_eq!(key.rehearsal(), Rehearsal::None);
        assert_eq!(key.rehearsed_failure(1, 1), None);
    }

    #[test]
    fn a_rehearsal_fails_where_it_should_and_nowhere_else() {
        let class = |key: &OperationKey, generation, ordinal| {
            key.rehearsed_failure(generation, ordinal).map(|failure| failure.class)
        };
        let transient = canary("1", Rehearsal::Transient);
        assert_eq!(transient.source_customer_id(), "1");
        assert_eq!(class(&transient, 1, 1), Some(FailureClass::Transport));
        assert_eq!(class(&transient, 1, 2), None);
        assert_eq!(class(&transient, 2, 1), None);
        let permanent = canary("1", Rehearsal::Permanent);
        assert_eq!(class(&permanent, 1, 1), Some(FailureClass::Rejected));
        assert_eq!(class(&permanent, 2, 1), Some(FailureClass::Rejected));
        assert_eq!(class(&canary("1", Rehearsal::None), 1, 1), None);
    }

    #[test]
    fn an_id_that_is_no_key_is_no_canary_either() {
        let period = Period::parse("2026-W42").unwrap();
        let new = |campaign: &str, id: &str| {
            OperationKey::canary(campaign, period, id, Timestamp::UNIX_EPOCH, Rehearsal::None)
        };
        assert_eq!(new("digest", ""), Err(KeyError::EmptyCustomer));
        assert_eq!(new("digest", "ann@shop.example"), Err(KeyError::AddressAsId));
        assert!(matches!(new(&"c".repeat(34), "1"), Err(KeyError::Campaign(_))));
        assert!(matches!(new("digest", &"x".repeat(220)), Err(KeyError::TooLong { .. })));
    }
}
