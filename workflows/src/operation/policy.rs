//! Policies: how long to wait after a failure, and when to give up.

use super::class::FailureClass;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How failures of one class are retried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The delay after the first failure.
    pub base: SignedDuration,
    /// No computed delay is longer; a provider's own wish may be.
    pub cap: SignedDuration,
    /// What each further failure multiplies the delay with; at least 1.
    pub multiplier: f64,
    /// The delay is drawn from `[1 - jitter, 1]` of the computed one; from 0 to 1.
    pub jitter: f64,
    /// After this many failures of the class in one generation the operation is dead.
    pub max_attempts: u32,
    /// This long after the generation's first attempt the operation is dead; time under a hold does
    /// not count.
    pub max_age: SignedDuration,
}

impl RetryPolicy {
    /// The delay after the `failures`-th failure (from 1), with `random` uniform in `[0, 1)`:
    /// `min(cap, base * multiplier^(failures - 1))`, jittered uniformly in `[1 - jitter, 1]` of it.
    #[must_use]
    pub fn delay(&self, failures: u32, random: f64) -> SignedDuration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let computed = self.base.as_secs_f64() * self.multiplier.powi(exponent);
        // `min` also turns an overflow to infinity into the cap.
        let capped = computed.min(self.cap.as_secs_f64());
        let jittered = capped * (1.0 - self.jitter * random.clamp(0.0, 1.0));
        SignedDuration::try_from_secs_f64(jittered).unwrap_or(self.cap)
    }
}

/// How unknown deliveries are pursued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownRules {
    /// The wait before the second look-up; it doubles up to an hour.
    pub lookup_every: SignedDuration,
    /// After this long an unknown counts as overdue.
    pub escalate_after: SignedDuration,
    /// After this long an unknown expires: given up without an answer.
    pub keep_rows_for: SignedDuration,
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// The answer is unknown after this long.
    pub timeout: SignedDuration,
    /// How long after its beginning an attempt may hand over, and a late answer is listened for.
    pub lease: SignedDuration,
    /// How long after the lease's end "not delivered" is not yet acted on.
    pub settle: SignedDuration,
}

/// When a run is held by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakers {
    /// After this many identical `schema` failures in a row.
    pub identical_schema_failures: u32,
    /// After this many unknown outcomes in a row.
    pub unknowns_in_a_row: u32,
}

/// Everything that the machine decides by. It travels in the workflow's input, frozen at the start,
/// so that an edited configuration never changes the replay of a history.
///
/// Every child's history holds them twice, so only what differs from [`Rules::default`] is written.
/// That default is therefore part of every history, and can't be changed: a new default value belongs
/// into the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Rules {
    /// The retry policy of each class that is retried.
    pub retry: BTreeMap<FailureClass, RetryPolicy>,
    /// The retry policy of the cleanup.
    pub cleanup: RetryPolicy,
    /// How unknowns are pursued.
    pub unknown: UnknownRules,
    /// How long an attempt may take.
    pub timeouts: Timeouts,
    /// When a run is held by itself.
    pub breakers: Breakers,
}

impl Rules {
    /// The classes that have a retry policy. Every other class is terminal, holds the run
    /// (`configuration`), or is not a failure of the provider.
    pub const RETRIED: [FailureClass; 4] = [
        FailureClass::Transport,
        FailureClass::Overloaded,
        FailureClass::RateLimited,
        FailureClass::Ambiguous,
    ];

    /// The default policy of `class`: `transport` and `overloaded` back off for a day,
    /// `rate_limited` is patient, and `ambiguous` paces replays and resends after a doubt was
    /// settled as not sent.
    #[must_use]
    pub fn default_retry(class: FailureClass) -> RetryPolicy {
        let policy = |base, cap, max_attempts| RetryPolicy {
            base: SignedDuration::from_secs(base),
            cap: SignedDuration::from_secs(cap),
            multiplier: 2.0,
            jitter: 0.5,
            max_attempts,
            max_age: SignedDuration::from_hours(24),
        };
        match class {
            FailureClass::Overloaded => policy(60, 3_600, 8),
            FailureClass::RateLimited => policy(10, 900, 30),
            FailureClass::Ambiguous => policy(5, 600, 8),
            _ => policy(30, 1_800, 8),
        }
    }

    /// The default policy of the cleanup.
    #[must_use]
    pub fn default_cleanup() -> RetryPolicy {
        RetryPolicy { max_attempts: 12, ..Self::default_retry(FailureClass::Transport) }
    }

    /// The policy that `class` is retried by; the default where the rules name none.
    #[must_use]
    pub fn retry(&self, class: FailureClass) -> RetryPolicy {
        self.retry.get(&class).copied().unwrap_or_else(|| Self::default_retry(class))
    }
}

/// Rules as they are written; what is absent is the default.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    retry: BTreeMap<FailureClass, RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cleanup: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unknown: Option<UnknownRules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeouts: Option<Timeouts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breakers: Option<Breakers>,
}

impl From<Rules> for Written {
    fn from(rules: Rules) -> Self {
        let Rules { mut retry, cleanup, unknown, timeouts, breakers } = rules;
        let usual = Rules::default();
        retry.retain(|class, policy| usual.retry.get(class) != Some(policy));
        Self {
            retry,
            cleanup: Some(cleanup).filter(|it| *it != usual.cleanup),
            unknown: Some(unknown).filter(|it| *it != usual.unknown),
            timeouts: Some(timeouts).filter(|it| *it != usual.timeouts),
            breakers: Some(breakers).filter(|it| *it != usual.breakers),
        }
    }
}

impl From<Written> for Rules {
    fn from(written: Written) -> Self {
        let mut rules = Self::default();
        rules.retry.extend(written.retry);
        Self {
            retry: rules.retry,
            cleanup: written.cleanup.unwrap_or(rules.cleanup),
            unknown: written.unknown.unwrap_or(rules.unknown),
            timeouts: written.timeouts.unwrap_or(rules.timeouts),
            breakers: written.breakers.unwrap_or(rules.breakers),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            retry: Self::RETRIED.map(|class| (class, Self::default_retry(class))).into(),
            cleanup: Self::default_cleanup(),
            unknown: UnknownRules {
                lookup_every: SignedDuration::from_mins(1),
                escalate_after: SignedDuration::from_mins(30),
                keep_rows_for: SignedDuration::from_hours(14 * 24),
            },
            timeouts: Timeouts {
                timeout: SignedDuration::from_secs(30),
                lease: SignedDuration::from_mins(15),
                settle: SignedDuration::from_mins(10),
            },
            breakers: Breakers { identical_schema_failures: 20, unknowns_in_a_row: 20 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The default as it was when what equals it was first left out. If this fails, histories and
    /// stored batches would be read otherwise than they were written: put the default back.
    const DEFAULT: &str = r#"{"retry":{
        "transport":{"base":"PT30S","cap":"PT30M","multiplier":2.0,"jitter":0.5,"max_attempts":8,"max_age":"PT24H"},
        "overloaded":{"base":"PT1M","cap":"PT1H","multiplier":2.0,"jitter":0.5,"max_attempts":8,"max_age":"PT24H"},
        "rate_limited":{"base":"PT10S","cap":"PT15M","multiplier":2.0,"jitter":0.5,"max_attempts":30,"max_age":"PT24H"},
        "ambiguous":{"base":"PT5S","cap":"PT10M","multiplier":2.0,"jitter":0.5,"max_attempts":8,"max_age":"PT24H"}},
        "cleanup":{"base":"PT30S","cap":"PT30M","multiplier":2.0,"jitter":0.5,"max_attempts":12,"max_age":"PT24H"},
        "unknown":{"lookup_every":"PT1M","escalate_after":"PT30M","keep_rows_for":"PT336H"},
        "timeouts":{"timeout":"PT30S","lease":"PT15M","settle":"PT10M"},
        "breakers":{"identical_schema_failures":20,"unknowns_in_a_row":20}}"#;

    #[test]
    fn what_is_as_ever_is_not_written_and_reads_as_it_was() {
        let rules: Rules = serde_json::from_str(DEFAULT).unwrap();
        assert_eq!(rules, Rules::default());
        assert_eq!(serde_json::to_string(&rules).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Rules>("{}").unwrap(), rules);
    }

    #[test]
    fn what_differs_is_written_and_read_back() {
        let mut rules = Rules::default();
        rules.retry.get_mut(&FailureClass::Overloaded).unwrap().max_attempts = 3;
        rules.timeouts.lease = SignedDuration::from_mins(1);
        let text = serde_json::to_string(&rules).unwrap();
        assert!(text.contains("overloaded") && !text.contains("transport"), "{text}");
        assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
    }

    proptest! {
        #[test]
        fn delays_grow_up_to_the_cap_and_stay_within_the_jitter(
            base in 1_i64..100, cap in 100_i64..10_000, multiplier in 1.0_f64..4.0,
            jitter in 0.0_f64..=1.0, failures in 1_u32..2_000, random in 0.0_f64..1.0,
        ) {
            let policy = RetryPolicy {
                base: SignedDuration::from_secs(base), cap: SignedDuration::from_secs(cap),
                multiplier, jitter, max_attempts: 8, max_age: SignedDuration::from_hours(24),
            };
            let longest = policy.delay(failures, 0.0);
            let delay = policy.delay(failures, random);
            prop_assert!(longest <= policy.cap);
            prop_assert!(longest >= policy.base.min(policy.cap));
            prop_assert!(delay <= longest);
            prop_assert!(delay.as_secs_f64() >= longest.as_secs_f64() * (1.0 - jitter) - 1e-6);
            prop_assert!(policy.delay(failures + 1, 0.0) >= longest);
        }
    }
}
