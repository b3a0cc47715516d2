//! Stores events, those that wait in one transaction: one commit for each would be slower than a
//! provider tells.

use digest_activities::ledger::Ledger;
use digest_activities::metrics::{EventResult, Metrics};
use digest_activities::webhook::ProviderEvent;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// How many requests may wait to be stored; a further one waits to wait.
const WAITING_MAX: usize = 1_000;
/// How many requests one transaction takes.
const AT_ONCE: usize = 500;

type Waiting = (Vec<ProviderEvent>, oneshot::Sender<bool>);

/// Where requests leave their events.
#[derive(Clone)]
pub(super) struct Store(mpsc::Sender<Waiting>);

impl Store {
    /// A store for events of `provider`, and its task, which rings `bell` when something was stored.
    pub(super) fn new(
        ledger: Ledger,
        provider: &'static str,
        bell: Arc<Notify>,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinHandle<()>) {
        let (sender, mut receiver) = mpsc::channel::<Waiting>(WAITING_MAX);
        let storing = tokio::spawn(async move {
            let mut waiting = Vec::new();
            while receiver.recv_many(&mut waiting, AT_ONCE).await > 0 {
                let (events, answers): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
                let events: Vec<ProviderEvent> = events.into_iter().flatten().collect();
                let stored = ledger.store_events(provider, &events).await;
                match &stored {
                    Ok(stored) => {
                        let repeated = events.len() as u64 - stored.new - stored.unknown_key;
                        metrics.webhook_events(provider, EventResult::New, stored.new);
                        metrics.webhook_events(
                            provider,
                            EventResult::UnknownKey,
                            stored.unknown_key,
                        );
                        metrics.webhook_events(provider, EventResult::Repeated, repeated);
                    }
                    Err(error) => tracing::warn!(%error, "events were not stored"),
                }
                for answer in answers {
                    let _ = answer.send(stored.is_ok());
                }
                bell.notify_one();
            }
        });
        (Self(sender), storing)
    }

    /// Stores `events`; returns whether they are stored.
    pub(super) async fn store(&self, events: Vec<ProviderEvent>) -> bool {
        let (answer, stored) = oneshot::channel();
        self.0.send((events, answer)).await.is_ok() && stored.await.unwrap_or(false)
    }
}
