//! What people read about a run and an operation.

use crate::table::Table;
use digest_activities::ledger::{RunStatus, Shown};
use digest_workflows::operation::State;
use jiff::{SignedDuration, Timestamp};

/// A run in words and counts.
#[must_use]
pub fn summary(status: &RunStatus) -> String {
    let mut text = format!("{} ({}): {}", status.run, status.period, status.state);
    if let Some(because) = &status.held_because
        && matches!(status.state.as_str(), "held" | "missed")
    {
        text.push_str(&format!(", {because}"));
    }
    text.push_str("\n\n");
    let mut table = Table::new(&["state", "class", "count"]);
    for line in &status.classes {
        let class = line.class.map_or("", |class| class.name());
        table.row([line.state.name(), class, &line.count.to_string()]);
    }
    table.row(["selected", "in all", &status.selected.to_string()]);
    text.push_str(&table.to_string());
    text.push('\n');
    for line in remarks(status) {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

/// Why rows could not be selected, the first ones by name.
fn faults(status: &RunStatus) -> String {
    const NAMED: usize = 10;
    let mut text = String::new();
    for fault in status.faults.iter().take(NAMED) {
        let customer = fault.customer.as_deref().unwrap_or("no id to show");
        text.push_str(&format!("\n  {customer}: {}", fault.reason));
    }
    if status.faults.len() > NAMED {
        text.push_str("\n  and more (--json)");
    }
    text
}

/// What deserves a sentence beside the counts.
fn remarks(status: &RunStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let period = status.period;
    let mut say = |count: u64, text: String| {
        if count > 0 {
            lines.push(format!("{count} {text}"));
        }
    };
    say(
        status.unkeyed,
        format!("rows of the customers query could not be selected{}", faults(status)),
    );
    say(
        status.unknown,
        format!("may or may not have been delivered: `digestd unknown --period {period}`"),
    );
    say(
        status.dead,
        format!("were not sent and are kept: `digestd dead-letters --period {period}`"),
    );
    say(
        status.cleanup_failed,
        format!("were delivered but not cleaned: `digestd cleanup --period {period}`"),
    );
    say(
        status.contradicted,
        "have evidence that contradicts what was decided: look at them with `digestd show`"
            .to_owned(),
    );
    say(status.undelivered, "were accepted and then given up by the provider".to_owned());
    say(
        status.newly_suppressed,
        "customers bounced for good, complained or opted out, and get nothing any more: \
         `digestd suppressions`"
            .to_owned(),
    );
    if status.state == "missed" {
        lines.push(format!(
            "this week did not run; `digestd schedule backfill --period {period}` sends it"
        ));
    }
    if status.missing_count > 0 {
        let age = status.oldest_pending_seconds.map_or_else(String::new, |seconds| {
            format!(", the oldest selected {} ago", ago(SignedDuration::from_secs(seconds)))
        });
        lines.push(format!("{} are not at rest yet{age}", status.missing_count));
        let named: Vec<&str> = status.missing.iter().take(5).map(String::as_str).collect();
        let more = status.missing_count.saturating_sub(named.len() as u64);
        let more = if more > 0 { format!(" and {more} more (--json)") } else { String::new() };
        lines.push(format!("  {}{more}", named.join(", ")));
    }
    lines
}

/// One operation from its selection to its end.
#[must_use]
pub fn operation(shown: &Shown, now: Timestamp) -> String {
    let mut text = shown.key.clone();
    let class = shown.class.map(|class| format!(" ({class})")).unwrap_or_default();
    text.push_str(&format!("\n{}{class} since {}", shown.state, clock(shown.operation.since)));
    if let Some(because) = shown.held_because.as_ref().filter(|_| !shown.state.is_terminal()) {
        text.push_str(&format!(
            "\nits run is held: {because}; nothing is sent until it is resumed"
        ));
    }
    if shown.undelivered {
        text.push_str("\naccepted, and then given up by the provider");
    }
    if let Some(reason) = shown.suppressed {
        text.push_str(&format!(
            "\nthe customer gets nothing any more ({}): `digestd suppressions`",
            reason.name()
        ));
    }
    let waits = shown.operation.waits_for(now);
    if !waits.is_empty() {
        text.push_str(&format!("\nwaits for {waits}"));
    }
    for (name, value) in [
        ("provider", shown.provider.as_ref()),
        ("message id", shown.message_id.as_ref()),
        ("web UI", shown.ui_url.as_ref()),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("\n{name}: {value}"));
        }
    }
    if !shown.attempts.is_empty() {
        let mut heads = vec!["attempt", "generation", "handed over", "lease ends", "outcome"];
        let batched = shown.attempts.iter().any(|attempt| attempt.batch.is_some());
        if batched {
            heads.push("batch");
        }
        let mut table = Table::new(&heads);
        for attempt in &shown.attempts {
            let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), clock);
            let doubt = if shown.state == State::Unknown { "in doubt" } else { "-" };
            let mut row = vec![
                attempt.number.to_string(),
                format!("{}.{}", attempt.generation, attempt.ordinal),
                time(attempt.handed_over_at),
                time(attempt.lease_ends),
                attempt.outcome.clone().unwrap_or_else(|| doubt.to_owned()),
            ];
            if batched {
                row.push(attempt.batch.clone().unwrap_or_else(|| "-".to_owned()));
            }
            table.row(row);
        }
        text.push_str(&format!("\n\n{table}"));
    }
    let mut table = Table::new(&["at", "event", "from", "to", "by", "why"]);
    table.row([clock(shown.frozen_at).as_str(), "frozen", "", "selected", "eligibility", ""]);
    for line in &shown.timeline {
        let why = [line.reason.as_deref(), line.note.as_deref()];
        let why: Vec<&str> = why.into_iter().flatten().collect();
        table.row([
            clock(line.at).as_str(),
            line.event.as_str(),
            line.from.as_deref().unwrap_or_default(),
            line.to.as_deref().unwrap_or_default(),
            line.by.as_str(),
            &why.join("; "),
        ]);
    }
    text.push_str(&format!("\n\n{table}"));
    text
}

/// An instant to the second, in UTC.
#[must_use]
pub fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A span in its two largest units.
#[must_use]
pub fn ago(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (days, hours) = (seconds / 86_400, seconds % 86_400 / 3_600);
    let (minutes, rest) = (seconds % 3_600 / 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, minutes) => format!("{minutes} min {rest} s"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_its_two_largest_units() {
        let of = |seconds| ago(SignedDuration::from_secs(seconds));
        assert_eq!(of(7), "7 s");
        assert_eq!(of(61), "1 min 1 s");
        assert_eq!(of(3_720), "1 h 2 min");
        assert_eq!(of(90_000), "1 d 1 h");
    }
}
