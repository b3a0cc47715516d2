//! A TCP proxy in front of a PostgreSQL server, which can lose the answer to a commit or stop
//! carrying anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the proxy does to what passes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Carries everything.
    None,
    /// Lets the next commit reach the server, and cuts that connection before its answer passes.
    /// Then carries everything again.
    LoseCommitAnswer,
    /// Cuts the connection of the next commit before it reaches the server. Then carries everything
    /// again.
    LoseCommit,
    /// Takes connections and bytes, and carries nothing.
    Stall,
}

/// A running proxy. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy on 127.0.0.1 to `server` (`host:port`).
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(server: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let fault = Arc::new(AtomicU8::new(Fault::None as u8));
        let shared = Arc::clone(&fault);
        let task = tokio::spawn(async move {
            // The connections end with this set, and so with the proxy.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, fault) = (server.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    // A broken connection is what the proxy is for.
                    carry(client, server, fault).await.ok();
                });
            }
        });
        Ok(Self { address, fault, task })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Plants `fault`.
    pub fn plant(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Whether a fault is planted that has not happened yet, or that goes on.
    #[must_use]
    pub fn is_planted(&self) -> bool {
        self.fault.load(Ordering::SeqCst) != Fault::None as u8
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: String, fault: Arc<AtomicU8>) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Ends, and so cuts both ways, when either side does.
    tokio::select! {
        end = upstream(from_client, to_server, &fault) => end,
        end = downstream(from_server, to_client, &fault) => end,
    }
}

/// Carries what the client says, unless it is the commit that is to be lost.
async fn upstream(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    fault: &AtomicU8,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = client.read(&mut buffer).await?;
        let bytes = &buffer[..length];
        if length == 0 || (is_commit(bytes) && happens(fault, Fault::LoseCommit)) {
            return Ok(());
        }
        stall(fault).await;
        server.write_all(bytes).await?;
    }
}

/// Carries what the server says, unless it answers the commit whose answer is to be lost.
async fn downstream(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    fault: &AtomicU8,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = server.read(&mut buffer).await?;
        let bytes = &buffer[..length];
        if length == 0 || (is_commit(bytes) && happens(fault, Fault::LoseCommitAnswer)) {
            return Ok(());
        }
        stall(fault).await;
        client.write_all(bytes).await?;
    }
}

/// Whether this is a commit, or the `CommandComplete` that answers one: both carry the word and a
/// zero byte.
fn is_commit(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|window| window == b"COMMIT\0")
}

/// Whether `wanted` is planted; it happens once.
fn happens(fault: &AtomicU8, wanted: Fault) -> bool {
    let (wanted, none) = (wanted as u8, Fault::None as u8);
    fault.compare_exchange(wanted, none, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Waits for ever while the proxy is stalled; a stalled connection never recovers.
async fn stall(fault: &AtomicU8) {
    if fault.load(Ordering::SeqCst) == Fault::Stall as u8 {
        std::future::pending::<()>().await;
    }
}
