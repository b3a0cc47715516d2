//! `digestd policy`: the rules in force for failures and for unknown deliveries.

use crate::cli::Exit;
use crate::cli::read::PolicyArgs;
use crate::config::duration::show;
use crate::config::{Config, ProviderKind};
use crate::output;
use crate::table::Table;
use digest_workflows::operation::{FailureClass, RetryPolicy};
use jiff::SignedDuration;
use serde_json::{Map, Number, Value, json};

/// Prints the rules of `config`.
pub(super) fn run(config: &Config, args: &PolicyArgs) -> anyhow::Result<Exit> {
    if args.json {
        output::print_json(&as_json(config))?;
    } else {
        output::print(&as_text(config))?;
    }
    Ok(Exit::Done)
}

fn as_text(config: &Config) -> String {
    let rules = config.rules();
    let mut failures = Table::new(&["class", "what happened", "then", "waits", "gives up after"]);
    for class in FailureClass::ALL {
        let (what, then) = meaning(class);
        let (waits, end) = rules.retry.get(&class).map(retried).unwrap_or_default();
        failures.row([class.name(), what, then, &waits, &end]);
    }
    let (waits, end) = retried(&rules.cleanup);
    failures.row(["cleanup", "rows not removed after a delivery", "retried", &waits, &end]);

    let timeouts = rules.timeouts;
    let settled = timeouts.lease.saturating_add(timeouts.settle);
    let mut unknown = Table::new(&["after the hand-over", "an unknown delivery"]);
    for (after, what) in [
        (timeouts.timeout, "begins: no answer came"),
        (rules.unknown.lookup_every, "is looked up again where the provider can, doubling to 1h"),
        (timeouts.lease, "is listened for no longer; \"delivered\" is acted on from here"),
        (settled, "may be found not sent: a miss or \"not delivered\" is acted on from here"),
        (rules.unknown.escalate_after, "is overdue: a person should look at it"),
        (rules.unknown.keep_rows_for, "expires: given up, and never sent again"),
    ] {
        unknown.row([show(after).as_str(), what]);
    }

    let batch = config.provider.batch.map_or_else(String::new, |most| {
        format!(
            "Up to {most} messages share a request. One that is refused for what may be the fault of one message sends each of them again alone; one without an answer leaves all of them unknown{}.\n\n",
            match config.provider.kind {
                ProviderKind::Resend => ", and goes again whole or not at all",
                _ => "",
            }
        )
    });
    format!(
        "failures of {}, by class\n\n{failures}\n\nWaits are drawn from the jittered part of those shown; a provider's own wish goes before them.\nNothing begins later than {} after the tick.\n\n{batch}unknown deliveries at {}\n\n{unknown}\n\nA run holds itself after {} identical schema failures or {} unknowns in a row.",
        config.campaign.name,
        show(config.campaign.useful_for),
        config.provider.kind.name(),
        config.hold.identical_schema_failures,
        config.hold.unknowns_in_a_row,
    )
}

/// What a class means, and what becomes of the operation.
fn meaning(class: FailureClass) -> (&'static str, &'static str) {
    match class {
        FailureClass::Transport => ("no connection, nothing handed over", "retried"),
        FailureClass::Overloaded => ("refused for now", "retried"),
        FailureClass::RateLimited => ("told to slow down", "retried"),
        FailureClass::Recipient => ("address wrong or unknown", "dead letter"),
        FailureClass::Suppressed => ("opted out, or on a suppression list", "skipped"),
        FailureClass::Rejected => ("refused for good", "dead letter"),
        FailureClass::Schema => ("message cannot be built", "dead letter"),
        FailureClass::Configuration => ("credentials, domain or quota", "run held"),
        FailureClass::Stale => ("too late to be useful", "dead letter, no replay"),
        FailureClass::Ambiguous => ("no clear answer", "unknown; retried if not sent"),
    }
}

/// The waits of a policy and its bounds, in words: `30s, 1m, 2m … 30m`, `8 attempts or 1d`.
fn retried(policy: &RetryPolicy) -> (String, String) {
    let wait = |failures| policy.delay(failures, 0.0);
    let mut waits = vec![show(wait(1))];
    for failures in 2..=policy.max_attempts.min(3) {
        if wait(failures) > wait(failures - 1) {
            waits.push(show(wait(failures)));
        }
    }
    let mut text = waits.join(", ");
    let last = wait(policy.max_attempts.max(2) - 1);
    if last > wait(3) {
        text = format!("{text} … {}", show(last));
    }
    if policy.jitter > 0.0 {
        text = format!("{text}, less up to {:.0}%", policy.jitter * 100.0);
    }
    let attempts = if policy.max_attempts == 1 { "attempt" } else { "attempts" };
    (text, format!("{} {attempts} or {}", policy.max_attempts, show(policy.max_age)))
}

fn as_json(config: &Config) -> Value {
    let rules = config.rules();
    let mut retry: Map<String, Value> = rules
        .retry
        .iter()
        .map(|(class, policy)| (class.name().to_owned(), policy_json(policy)))
        .collect();
    retry.insert("cleanup".to_owned(), policy_json(&rules.cleanup));
    let mut policy = json!({
        "campaign": config.campaign.name,
        "provider": config.provider.kind.name(),
        "useful_for_seconds": seconds(config.campaign.useful_for),
        "retry": retry,
        "unknown": {
            "timeout_seconds": seconds(rules.timeouts.timeout),
            "lease_seconds": seconds(rules.timeouts.lease),
            "settle_seconds": seconds(rules.timeouts.settle),
            "lookup_every_seconds": seconds(rules.unknown.lookup_every),
            "escalate_after_seconds": seconds(rules.unknown.escalate_after),
            "keep_rows_for_seconds": seconds(rules.unknown.keep_rows_for),
        },
        "hold": {
            "identical_schema_failures": config.hold.identical_schema_failures,
            "unknowns_in_a_row": config.hold.unknowns_in_a_row,
        },
    });
    if let Some(batch) = config.provider.batch {
        policy["batch"] = batch.into();
    }
    policy
}

fn policy_json(policy: &RetryPolicy) -> Value {
    json!({
        "base_seconds": seconds(policy.base),
        "cap_seconds": seconds(policy.cap),
        "multiplier": policy.multiplier,
        "jitter": policy.jitter,
        "max_attempts": policy.max_attempts,
        "max_age_seconds": seconds(policy.max_age),
    })
}

/// Whole seconds as a whole number.
fn seconds(duration: SignedDuration) -> Option<Number> {
    if duration.subsec_nanos() == 0 {
        Some(duration.as_secs().into())
    } else {
        Number::from_f64(duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config() -> Config {
        let text = include_str!("../../templates/digestd.toml");
        Config::parse(text, Path::new("digestd.toml")).unwrap()
    }

    #[test]
    fn a_person_reads_waits_and_bounds() {
        let text = as_text(&config());
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("transport ").contains("30s, 1m, 2m … 30m, less up to 50%"), "{text}");
        assert!(line("transport ").ends_with("8 attempts or 1d"), "{text}");
        assert!(line("recipient ").ends_with("dead letter"), "{text}");
        assert!(line("cleanup ").ends_with("12 attempts or 1d"), "{text}");
        assert!(line("25m ").contains("not delivered"), "{text}");
        assert!(line("14d ").contains("expires"), "{text}");
        for class in FailureClass::ALL {
            assert!(text.contains(class.name()), "{class}");
        }
    }

    #[test]
    fn waits_are_told_as_they_will_be() {
        let policy = |base, cap, attempts| {
            retried(&RetryPolicy {
                base: SignedDuration::from_secs(base),
                cap: SignedDuration::from_secs(cap),
                multiplier: 2.0,
                jitter: 0.0,
                max_attempts: attempts,
                max_age: SignedDuration::from_hours(24),
            })
        };
        assert_eq!(policy(60, 60, 8).0, "1m");
        assert_eq!(policy(60, 90, 8).0, "1m, 1m 30s");
        assert_eq!(policy(60, 3_600, 5).0, "1m, 2m, 4m … 8m");
        assert_eq!(policy(60, 60, 1).1, "1 attempt or 1d");
    }

    #[test]
    fn batches_are_told_where_they_are_on() {
        let mut config = config();
        assert!(!as_text(&config).contains("share a request"));
        assert!(as_json(&config).get("batch").is_none());
        config.provider.batch = Some(100);
        config.provider.kind = ProviderKind::Resend;
        let text = as_text(&config);
        assert!(text.contains("Up to 100 messages share a request."), "{text}");
        assert!(text.contains("goes again whole"), "{text}");
        assert_eq!(as_json(&config)["batch"], 100);
    }

    #[test]
    fn a_program_reads_seconds() {
        let json = as_json(&config());
        assert_eq!(json["retry"]["transport"]["base_seconds"], 30);
        assert_eq!(json["retry"]["cleanup"]["max_attempts"], 12);
        assert_eq!(json["unknown"]["keep_rows_for_seconds"], 1_209_600);
        assert_eq!(json["unknown"]["settle_seconds"], 600);
        let retried = json["retry"].as_object().unwrap();
        assert_eq!(retried.len(), 5);
    }
}
