//! Server-sent events: that there is news, never what. The page asks again.

use axum::Extension;
use axum::response::sse::{Event, KeepAlive, Sse};
use digest_activities::ledger::{Ledger, LedgerError};
use futures::Stream;
use futures::stream::unfold;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The ledger is asked for news so often at most, for all browsers together.
const EVERY: Duration = Duration::from_secs(2);
/// Asking takes at most one part in so many of the time.
const SHARE: u32 = 20;
/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the ledger is known to be at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    /// Nothing is known yet.
    #[default]
    Nothing,
    /// It does not answer.
    Away,
    /// So many decisions, and so many operations in the newest run.
    At(i64, u64),
}

/// Watches the ledger as long as somebody looks at a page.
pub struct Watch {
    ledger: Ledger,
    campaign: String,
    seen: watch::Sender<Seen>,
}

impl Watch {
    /// A watch on what `campaign` does in `ledger`.
    #[must_use]
    pub fn new(ledger: Ledger, campaign: String) -> Arc<Self> {
        Arc::new(Self { ledger, campaign, seen: watch::Sender::default() })
    }

    /// Asks for news until `stop` says so.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            let mut pause = EVERY;
            if self.seen.receiver_count() > 0 {
                let begun = Instant::now();
                let seen = match tokio::time::timeout(PATIENCE, self.ask()).await {
                    Ok(Ok(seen)) => seen,
                    _ => Seen::Away,
                };
                pause = pause.max(begun.elapsed() * SHARE);
                self.seen.send_if_modified(|before| std::mem::replace(before, seen) != seen);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn ask(&self) -> Result<Seen, LedgerError> {
        let counter = self.ledger.counter().await?;
        let newest = self.ledger.latest_run(&self.campaign).await?;
        Ok(Seen::At(counter, newest.map_or(0, |run| run.selected)))
    }
}

/// One event for each piece of news, until the worker or the browser ends.
pub(super) async fn stream(
    Extension(watch): Extension<Arc<Watch>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut news = watch.seen.subscribe();
    // What the page shows already is no news.
    news.mark_unchanged();
    let events = unfold((news, watch), async |(mut news, watch)| {
        news.changed().await.ok()?;
        let name = if *news.borrow_and_update() == Seen::Away { "away" } else { "changed" };
        Some((Ok(Event::default().event(name).data(name)), (news, watch)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
