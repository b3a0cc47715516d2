//! Metrics, as Prometheus reads them: what this process has done, how the campaign stands in the
//! ledger, and what the engine's SDK counts. `docs/metrics.md` lists every name.
//!
//! How the campaign stands is read from the ledger beside the scrapes, and seldom enough to cost next
//! to nothing however large the ledger is. While the ledger does not answer, those gauges are absent:
//! an old number is never shown as today's.

mod engine;
mod figures;

pub use engine::EngineMetrics;

use digest_activities::ledger::{Figures, Ledger};
use digest_activities::metrics::Metrics;
use jiff::SignedDuration;
use prometheus::{Encoder, Error, TextEncoder};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// How often the ledger is asked how the campaign stands, at most.
const EVERY: Duration = Duration::from_secs(5);
/// Asking takes at most one part in so many of the time.
const SHARE: u32 = 20;
/// An answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer is still shown when the next one does not come.
const GRACE: Duration = Duration::from_mins(1);

/// What `/metrics` tells.
pub struct Exposition {
    /// What this process has done.
    pub metrics: Arc<Metrics>,
    /// Where the campaign's figures are read.
    pub ledger: Ledger,
    /// The campaign.
    pub campaign: String,
    /// After this long a doubt is overdue.
    pub escalate_after: SignedDuration,
    /// Places to listen for answers that are free.
    pub listening: Arc<Semaphore>,
    /// How many there are in all.
    pub places: u32,
    /// Whether the worker is draining.
    pub drain: watch::Receiver<bool>,
    /// What the engine's SDK counts, if it could be had.
    pub engine: Option<EngineMetrics>,
    /// The newest figures.
    pub newest: Newest,
}

/// The newest figures, and until when they may be shown.
#[derive(Default)]
pub struct Newest(Mutex<Option<(Figures, Instant)>>);

impl Newest {
    fn put(&self, figures: Figures, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((figures, until));
    }

    fn get(&self, now: Instant) -> Option<Figures> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().filter(|(_, until)| now < *until).map(|(figures, _)| figures.clone())
    }
}

impl Exposition {
    /// Reads the campaign's figures again and again until `stop` says so.
    pub async fn refresh(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let begun = Instant::now();
            let asked = self.ledger.figures(&self.campaign, self.escalate_after);
            let answer = tokio::time::timeout(PATIENCE, asked).await;
            let pause = EVERY.max(begun.elapsed() * SHARE);
            match answer {
                Ok(Ok(figures)) => {
                    failing = false;
                    self.newest.put(figures, Instant::now() + pause + PATIENCE + GRACE);
                }
                // Told once: the scrapes show how long it goes on.
                Ok(Err(error)) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "the ledger did not tell how the campaign stands");
                }
                Err(_) if !failing => {
                    failing = true;
                    tracing::warn!("the ledger took too long to tell how the campaign stands");
                }
                _ => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// All metrics in the text format of Prometheus, version 0.0.4.
    ///
    /// # Errors
    /// A metric that cannot be written, which is a defect of ours.
    pub async fn text(&self, ledger_is_up: bool) -> Result<String, Error> {
        let mut families = self.metrics.gather();
        let figures = self.newest.get(Instant::now()).filter(|_| ledger_is_up);
        let process = figures::Process {
            ledger_is_up,
            draining: *self.drain.borrow(),
            listening: u64::from(self.places)
                .saturating_sub(self.listening.available_permits() as u64),
            places: u64::from(self.places),
        };
        families.extend(figures::families(&self.campaign, &process, figures.as_ref())?);
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text)?;
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if let Some(engine) = &self.engine {
            text.push_str(&engine.text().await);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_only_as_long_as_they_are_true() {
        let newest = Newest::default();
        let now = Instant::now();
        assert_eq!(newest.get(now), None);
        newest.put(Figures { unknown: 3, ..Figures::default() }, now + GRACE);
        assert_eq!(newest.get(now).unwrap().unknown, 3);
        assert_eq!(newest.get(now + GRACE), None);
    }
}
