//! Ctrl-C, counted: the first ends the demo in order, the second waits for nothing.

use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The interrupts (SIGINT, SIGTERM, SIGHUP) of this process since it listens for them.
#[derive(Debug)]
pub struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Begins to listen; from now on none of them ends the process by itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            while !count.is_closed() {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                    () = count.closed() => return,
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(counted))
    }

    /// Waits until there were `count` of them.
    pub(super) async fn nth(&mut self, count: u32) {
        if self.0.wait_for(|counted| *counted >= count).await.is_err() {
            // Nobody counts any more, so none will come.
            std::future::pending::<()>().await;
        }
    }
}
