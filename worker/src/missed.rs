//! Weeks that did not run: each hour, the calendar is compared with the ledger's runs, and a tick
//! that passed without one is recorded as missed, with the reason as far as it can be known. Only
//! `digestd run` and `digestd schedule backfill` send a missed week.

use crate::engine::EngineError;
use crate::engine::schedule::{self, Shown};
use anyhow::Context;
use digest_activities::calendar::Calendar;
use digest_activities::ledger::Ledger;
use digest_workflows::operation::Period;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use temporalio_client::{Client, WorkflowListOptions};
use tokio::sync::watch;

/// How often the calendar is compared with the ledger.
const EVERY: Duration = Duration::from_hours(1);
/// A run that is caught up at the last moment may take this long to be opened.
const LATE_MARGIN: SignedDuration = SignedDuration::from_mins(30);

/// What the comparison needs.
pub struct Missed {
    /// The ledger.
    pub ledger: Ledger,
    /// The engine.
    pub client: Client,
    /// The campaign.
    pub campaign: String,
    /// Its ticks.
    pub calendar: Calendar,
    /// How late the engine may still act on a tick.
    pub catch_up: SignedDuration,
    /// How long runs are kept: a week whose run is forgotten was not missed.
    pub kept: SignedDuration,
}

impl Missed {
    /// Compares at once and each hour until `stop` says so. A failure is logged and tried again.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            match self.at_this_moment().await {
                Ok(missed) => {
                    for period in missed {
                        tracing::warn!(%period, "this week did not run; it is recorded as missed");
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "missed weeks were not looked for"
                    );
                }
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// [`once`](Self::once) now, by the ledger's clock: several workers share it, and one whose own
    /// clock is ahead must not call a week missed whose tick is still to come.
    async fn at_this_moment(&self) -> anyhow::Result<Vec<Period>> {
        self.once(self.ledger.now().await?).await
    }

    /// Records every week that is missed at `now` and was not recorded before; returns those.
    ///
    /// # Errors
    /// When the ledger or the engine does not answer: nothing is concluded from that, and the next
    /// comparison finds the same weeks.
    pub async fn once(&self, now: Timestamp) -> anyhow::Result<Vec<Period>> {
        let Some(since) = self.ledger.set_up_since(&self.campaign).await? else {
            return Ok(Vec::new());
        };
        let due = self.due(since.max(now - self.kept), now);
        let accounted = self.ledger.accounted_periods(&self.campaign).await?;
        let candidates: Vec<_> =
            due.into_iter().filter(|(period, _)| !accounted.contains(period)).collect();
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let schedule = match schedule::show(&self.client, &self.campaign).await {
            Ok(shown) => Some(shown),
            Err(EngineError::NoSchedule { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let mut missed = Vec::new();
        for (period, tick) in candidates {
            // Whose clock is ahead of the engine's: this tick is still to come.
            let ahead = schedule.as_ref().and_then(|schedule| schedule.next.first());
            if ahead.is_some_and(|next| *next <= tick) || self.is_on_its_way(period, tick).await? {
                continue;
            }
            let because = reason(schedule.as_ref(), tick);
            if self.ledger.miss(&self.campaign, period, tick, &because).await? {
                missed.push(period);
            }
        }
        Ok(missed)
    }

    /// The weeks after `since` whose tick is too long ago for the engine to act on it by itself.
    fn due(&self, since: Timestamp, now: Timestamp) -> Vec<(Period, Timestamp)> {
        let last = now - self.catch_up - LATE_MARGIN;
        std::iter::successors(self.calendar.next_after(since), |tick| {
            self.calendar.next_after(*tick)
        })
        .take_while(|tick| *tick < last)
        .map(|tick| (Period::of(tick, self.calendar.zone()), tick))
        .collect()
    }

    /// Whether a workflow that waits for a worker is about to open the run.
    async fn is_on_its_way(&self, period: Period, tick: Timestamp) -> anyhow::Result<bool> {
        let run = digest_workflows::run_id(&self.campaign, period);
        let weekly = format!("{}-{tick}", schedule::id(&self.campaign));
        let query = format!(
            "(WorkflowId = '{run}' OR WorkflowId = '{weekly}') AND ExecutionStatus = 'Running'"
        );
        let mut found = Box::pin(self.client.list_workflows(query, WorkflowListOptions::default()));
        Ok(found.next().await.transpose().context("the engine does not list workflows")?.is_some())
    }
}

/// Why the tick passed without a run, as far as the schedule tells.
fn reason(schedule: Option<&Shown>, tick: Timestamp) -> String {
    let Some(schedule) = schedule else {
        return "there is no schedule; `digestd setup` creates it".to_owned();
    };
    if let Some(start) = schedule.recent.iter().find(|start| start.scheduled == Some(tick)) {
        return format!(
            "the schedule fired, and its workflow {} opened no run (it is {})",
            start.workflow_id, start.status
        );
    }
    if schedule.paused {
        // The note is a person's own and may hold anything.
        return "the schedule is paused".to_owned();
    }
    if schedule.missed_catch_up > 0 {
        return "the engine was away for longer than catch_up, or the schedule was paused then"
            .to_owned();
    }
    "the schedule did not fire: it was paused then, or did not exist yet".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_reason_is_what_the_schedule_shows() {
        let tick = at("2026-10-12T07:00:00Z");
        let mut shown = Shown {
            id: "digest-weekly".to_owned(),
            cron: None,
            timezone: "Europe/Berlin".to_owned(),
            catch_up_seconds: 0,
            paused: true,
            note: "ann@shop.example is on holiday".to_owned(),
            next: Vec::new(),
            recent: Vec::new(),
            missed_catch_up: 0,
        };
        assert_eq!(reason(Some(&shown), tick), "the schedule is paused");
        shown.paused = false;
        assert!(reason(Some(&shown), tick).contains("did not fire"));
        shown.missed_catch_up = 1;
        assert!(reason(Some(&shown), tick).contains("longer than catch_up"));
        shown.recent.push(schedule::Started {
            scheduled: Some(tick),
            started: None,
            workflow_id: "digest-weekly-2026-10-12T07:00:00Z".to_owned(),
            run_id: String::new(),
            status: "terminated",
        });
        assert!(reason(Some(&shown), tick).contains("terminated"));
        assert!(reason(None, tick).contains("no schedule"));
    }
}
