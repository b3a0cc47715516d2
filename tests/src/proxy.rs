//! A TCP proxy in front of a server of any kind, which loses what a fault says: connections, bytes, or
//! the one answer that matters. It knows PostgreSQL's commits, and messages by SMTP and HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does to what passes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Carries everything.
    None,
    /// Lets the next commit reach the server, and cuts that connection before its answer passes.
    /// Then carries everything again.
    LoseCommitAnswer,
    /// Cuts the connection of the next commit before it reaches the server. Then carries everything
    /// again.
    LoseCommit,
    /// Lets the next message, or question, reach the server (the end of a mail's data, or an HTTP
    /// `POST`), and cuts that connection before its answer passes. Then carries everything again.
    LoseAnswer,
    /// Takes connections and bytes, and carries nothing. What it has stalled never recovers.
    Stall,
    /// Carries everything, this much later.
    Delay(Duration),
    /// Cuts every connection after so many further bytes of the client's.
    CutAfter(usize),
    /// Ends every connection; new ones are closed at once.
    Cut,
}

/// A running proxy. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    fault: watch::Sender<Fault>,
    /// How often everything was cut: a connection that looks away for a moment misses none of it.
    cuts: watch::Sender<u32>,
    struck: AtomicU32,
    /// One at a time may find that a fault which happens once is its own.
    once: Mutex<()>,
}

impl Proxy {
    /// Starts a proxy on 127.0.0.1 to `server` (`host:port`).
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(server: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            fault: watch::Sender::new(Fault::None),
            cuts: watch::Sender::default(),
            struck: AtomicU32::new(0),
            once: Mutex::new(()),
        });
        let accepting = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // The connections end with this set, and so with the proxy.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (server, shared) = (server.clone(), Arc::clone(&accepting));
                connections.spawn(async move {
                    // A broken connection is what the proxy is for.
                    carry(client, server, &shared).await.ok();
                });
            }
        });
        Ok(Self { address, shared, task })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Plants `fault`, in the place of the one before.
    pub fn plant(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
        if fault == Fault::Cut {
            self.shared.cuts.send_modify(|cuts| *cuts += 1);
        }
    }

    /// Ends every connection; new ones are closed at once.
    pub fn cut(&self) {
        self.plant(Fault::Cut);
    }

    /// Lets connections through again.
    pub fn heal(&self) {
        self.plant(Fault::None);
    }

    /// Whether a fault is planted that has not happened yet, or that goes on.
    #[must_use]
    pub fn is_planted(&self) -> bool {
        self.shared.planted() != Fault::None
    }

    /// How often faults have struck so far: connections cut, and stretches of bytes held back.
    #[must_use]
    pub fn struck(&self) -> u32 {
        self.shared.struck.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn planted(&self) -> Fault {
        *self.fault.borrow()
    }

    fn strike(&self) {
        self.struck.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether `wanted` is planted; it happens once.
    fn happens(&self, wanted: Fault) -> bool {
        let _one = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let happens = self.planted() == wanted;
        if happens {
            self.fault.send_replace(Fault::None);
            self.strike();
        }
        happens
    }

    /// Holds back what is about to be carried, for as long as the fault says.
    async fn hold_back(&self) {
        match self.planted() {
            Fault::Stall => {
                self.strike();
                std::future::pending::<()>().await;
            }
            Fault::Delay(time) => {
                self.strike();
                tokio::time::sleep(time).await;
            }
            _ => {}
        }
    }
}

async fn carry(client: TcpStream, server: String, shared: &Shared) -> std::io::Result<()> {
    let mut cuts = shared.cuts.subscribe();
    if shared.planted() == Fault::Cut {
        shared.strike();
        return Ok(());
    }
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked = AtomicBool::new(false);
    // Ends, and so cuts both ways, when either side does.
    tokio::select! {
        end = upstream(from_client, to_server, shared, &asked) => end,
        end = downstream(from_server, to_client, shared, &asked) => end,
        _ = cuts.changed() => {
            shared.strike();
            Ok(())
        }
    }
}

/// Carries what the client says, unless it is what is to be lost.
async fn upstream(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
    asked: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut carried = 0;
    loop {
        let length = client.read(&mut buffer).await?;
        let mut bytes = &buffer[..length];
        if length == 0 || (is_commit(bytes) && shared.happens(Fault::LoseCommit)) {
            return Ok(());
        }
        shared.hold_back().await;
        if is_message(bytes) {
            asked.store(true, Ordering::SeqCst);
        }
        match shared.planted() {
            Fault::CutAfter(limit) => {
                bytes = &bytes[..length.min(limit.saturating_sub(carried))];
                carried += length;
            }
            _ => carried = 0,
        }
        server.write_all(bytes).await?;
        if bytes.len() < length {
            shared.strike();
            return Ok(());
        }
    }
}

/// Carries what the server says, unless it is the answer that is to be lost.
async fn downstream(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    shared: &Shared,
    asked: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = server.read(&mut buffer).await?;
        let bytes = &buffer[..length];
        let lost = (is_commit(bytes) && shared.happens(Fault::LoseCommitAnswer))
            || (asked.swap(false, Ordering::SeqCst) && shared.happens(Fault::LoseAnswer));
        if length == 0 || lost {
            return Ok(());
        }
        shared.hold_back().await;
        client.write_all(bytes).await?;
    }
}

/// Whether this is a commit, or the `CommandComplete` that answers one: both carry the word and a
/// zero byte.
fn is_commit(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|window| window == b"COMMIT\0")
}

/// Whether with this the server may have taken a message: the end of a mail's data, or a `POST`.
fn is_message(bytes: &[u8]) -> bool {
    bytes.starts_with(b"POST ") || bytes.ends_with(b"\r\n.\r\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

    use super::*;

    /// A server that answers what it gets with the same bytes.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        address
    }

    /// What comes back for `bytes` on a new connection, until it ends or as much came as was said.
    async fn said(proxy: &Proxy, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let mut back = Vec::new();
        if stream.write_all(bytes).await.is_ok() {
            let mut part = [0; 64];
            while back.len() < bytes.len() {
                match stream.read(&mut part).await {
                    Ok(0) | Err(_) => break,
                    Ok(length) => back.extend_from_slice(&part[..length]),
                }
            }
        }
        back
    }

    #[tokio::test]
    async fn each_fault_loses_what_it_says_and_is_counted() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        assert_eq!(said(&proxy, b"hello").await, b"hello");
        assert_eq!(proxy.struck(), 0);

        proxy.plant(Fault::CutAfter(3));
        assert!(said(&proxy, b"hello").await.len() <= 3);
        assert_eq!(proxy.struck(), 1);

        proxy.plant(Fault::LoseAnswer);
        assert_eq!(said(&proxy, b"a question").await, b"a question", "it is no message");
        assert_eq!(said(&proxy, b"POST / HTTP/1.1\r\n\r\n").await, b"");
        assert!(!proxy.is_planted(), "it happens once");
        assert_eq!(said(&proxy, b"text\r\n.\r\n").await, b"text\r\n.\r\n");
        assert_eq!(proxy.struck(), 2);

        proxy.plant(Fault::Delay(Duration::from_millis(1)));
        assert_eq!(said(&proxy, b"hello").await, b"hello");
        assert!(proxy.struck() > 2);

        proxy.cut();
        assert_eq!(said(&proxy, b"hello").await, b"");
        proxy.heal();
        assert_eq!(said(&proxy, b"hello").await, b"hello");
    }

    #[tokio::test]
    async fn what_is_stalled_or_open_ends_when_everything_is_cut() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        proxy.plant(Fault::Stall);
        let mut stalled = TcpStream::connect(proxy.address()).await.unwrap();
        stalled.write_all(b"hello").await.unwrap();
        while proxy.struck() == 0 {
            tokio::task::yield_now().await;
        }
        proxy.cut();
        // Healed before anybody has looked: the cut holds all the same.
        proxy.heal();
        let mut rest = Vec::new();
        stalled.read_to_end(&mut rest).await.ok();
        assert_eq!(rest, b"");
        assert_eq!(said(&proxy, b"hello").await, b"hello");
    }
}
