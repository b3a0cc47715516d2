//! Sessions that wait for their next message. Only those come here whose last reply was complete,
//! clean, and alone.

use super::session::Session;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long a session may wait. Servers close idle ones themselves, often after a minute or more.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How many may wait at once.
const SESSIONS_MAX: usize = 32;

/// How many messages one connection carries; many relays stop a client at a hundred.
const MESSAGES_MAX: u32 = 100;

/// The waiting sessions of one account.
#[derive(Default)]
pub(super) struct Idle {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The newest last, so that a lull lets the others grow old and close.
    sessions: Vec<(Instant, Session)>,
    /// Whether a task is there that ends those that waited too long.
    swept: bool,
}

impl Idle {
    /// The session that waited the shortest, if it is fresh enough.
    pub(super) fn take(&self) -> Option<Session> {
        let mut waiting = self.lock();
        let (since, _) = waiting.sessions.last()?;
        if since.elapsed() >= IDLE_MAX {
            return None;
        }
        waiting.sessions.pop().map(|(_, session)| session)
    }

    /// Lets a session wait for another message, or ends it where it has done enough.
    pub(super) fn park(self: &Arc<Self>, session: Session) {
        let mut waiting = self.lock();
        if session.messages >= MESSAGES_MAX || waiting.sessions.len() >= SESSIONS_MAX {
            drop(waiting);
            tokio::spawn(session.quit());
            return;
        }
        waiting.sessions.push((Instant::now(), session));
        if !std::mem::replace(&mut waiting.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Those that have waited too long, and when to look again; no time when none is left.
    fn expired(&self) -> (Vec<Session>, Option<Instant>) {
        let mut waiting = self.lock();
        let fresh_from = waiting.sessions.iter().position(|(since, _)| since.elapsed() < IDLE_MAX);
        let count = fresh_from.unwrap_or(waiting.sessions.len());
        let expired = waiting.sessions.drain(..count).map(|(_, session)| session).collect();
        let next = waiting.sessions.first().map(|(since, _)| *since + IDLE_MAX);
        waiting.swept = next.is_some();
        (expired, next)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sessions that waited too long, until none waits or the account is gone.
async fn sweep(idle: Weak<Idle>) {
    loop {
        let Some((expired, next)) = idle.upgrade().map(|idle| idle.expired()) else { return };
        futures::future::join_all(expired.into_iter().map(Session::quit)).await;
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
    }
}
