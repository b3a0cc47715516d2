//! What an operation waits for, in plain words: the same in the web UI, `unknown` and `show`.

use super::state::{Operation, State, Verdict};
use jiff::Timestamp;

impl Operation {
    /// What it waits for at `now`; empty where nothing follows.
    #[must_use]
    pub fn waits_for(&self, now: Timestamp) -> String {
        match self.state {
            State::Selected => "its first attempt".to_owned(),
            State::Sending => "the provider's answer".to_owned(),
            State::Retrying => match (self.retry_at, self.class) {
                (Some(at), Some(class)) if at > now => {
                    format!("the next attempt at {} (last failure: {class})", clock(at))
                }
                (_, Some(class)) => format!("the next attempt (last failure: {class})"),
                _ => "the next attempt".to_owned(),
            },
            State::Unknown => self.doubt_waits_for(now),
            State::Sent if self.cleanup.given_up => {
                "`digestd cleanup`: delivered, but its rows could not be removed".to_owned()
            }
            State::Sent => "the cleanup of its rows".to_owned(),
            State::Cleaned | State::Suppressed | State::Dead | State::Expired => String::new(),
        }
    }

    fn doubt_waits_for(&self, now: Timestamp) -> String {
        if let Some(pending) = self.verdict {
            let verdict = match pending.verdict {
                Verdict::Delivered => "delivered",
                _ => "not delivered",
            };
            return format!(
                "the verdict \"{verdict}\" to be acted on at {}",
                clock(pending.acts_at)
            );
        }
        let mut means = Vec::new();
        if self.replayable_until().is_some_and(|until| now < until) {
            means.push("a replay under the same key");
        }
        if self.doubts.iter().any(|d| d.contract.lookup.is_offered()) && !self.lookups.spent {
            means.push("a look-up at the provider");
        }
        if self.doubts.iter().any(|doubt| doubt.contract.events) {
            means.push("an event of the provider");
        }
        let late = self.lease_ends().filter(|ends| *ends > now);
        let late = late.map(|ends| format!("a late answer until {}", clock(ends)));
        let mut words: Vec<String> = late.into_iter().collect();
        words.extend(means.into_iter().map(str::to_owned));
        words.push("a human's verdict".to_owned());
        words.join(", or ")
    }
}

/// An instant to the second, in UTC.
fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}
