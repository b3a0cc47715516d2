//! An SMTP server that does what a script says: it answers, refuses, falls silent, closes or resets at
//! any phase, before or after it has stored a message. It keeps a record of what it saw, so that a
//! test can compare a client's verdict with the truth.

mod talk;

pub use crate::authority::Authority;

use crate::watched;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A point of the conversation at which a script can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Right after the connection, or after the handshake of implicit TLS.
    Greeting,
    /// EHLO, each time.
    Ehlo,
    /// STARTTLS.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// The first line of a message was read.
    Body,
    /// The end of the data was read.
    Dot,
    /// RSET.
    Reset,
    /// QUIT.
    Quit,
}

/// What the server does at a point.
#[derive(Clone, Debug)]
pub enum Act {
    /// What an ordinary server does. After the dot: store, then say yes.
    Go,
    /// Says this line instead; after the dot, nothing is stored.
    Say(&'static str),
    /// Sends exactly these bytes.
    Raw(&'static str),
    /// Sends exactly these bytes, then closes.
    RawThenClose(&'static str),
    /// Closes in the ordinary way.
    Close,
    /// Resets the connection.
    Reset,
    /// Says nothing more, but reads on until the client ends.
    Hang,
    /// Stops reading too.
    Stall,
    /// Waits for [`SmtpServer::release`], then says this line.
    Late(&'static str),
    /// Stores the message, then does this; only after the dot.
    Store(Box<Act>),
}

impl Act {
    /// Stores the message, then does `act`.
    #[must_use]
    pub fn store_then(act: Self) -> Self {
        Self::Store(Box::new(act))
    }
}

/// What one connection does, point by point: the first entry for a point is used up when the point is
/// reached, and where no entry is left the server is an ordinary one.
pub type Script = Vec<(At, Act)>;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client said QUIT.
    Quit,
    /// The client closed in the ordinary way, without a word.
    Closed,
    /// The client reset the connection.
    Reset,
    /// The server ended it.
    ByServer,
}

/// What the server saw.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Messages it took responsibility for, with their dots unstuffed.
    pub stored: Vec<Vec<u8>>,
    /// How many times it read an end of data, whatever it then did.
    pub ends_of_data: usize,
    /// How many connections were made.
    pub connections: usize,
    /// Every command line, each with the running number of its connection, from zero.
    pub commands: Vec<(usize, String)>,
    /// How connections ended, in the order in which they did.
    pub endings: Vec<Ending>,
    /// How many points were reached at which a script fell silent.
    pub silences: usize,
}

/// What kind of server it is.
#[derive(Clone, Debug, Default)]
pub struct Traits {
    /// TLS with this authority's certificate.
    pub tls: Option<(TlsMode, Arc<Authority>)>,
    /// The one account, as user name and password. AUTH is offered only under TLS.
    pub account: Option<(&'static str, &'static str)>,
    /// Offers AUTH LOGIN alone instead of PLAIN.
    pub login_only: bool,
    /// Further EHLO lines.
    pub extensions: Vec<&'static str>,
    /// Room for received bytes, for a server that is meant to stop reading.
    pub receive_buffer: Option<u32>,
    /// Listens on every address, not only on 127.0.0.1.
    pub public: bool,
}

/// When TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// At once.
    Implicit,
    /// At STARTTLS.
    StartTls,
}

/// A running server on a port of its own; it ends with this value.
pub struct SmtpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    traits: Traits,
    scripts: Mutex<VecDeque<Script>>,
    record: watch::Sender<Record>,
    released: watch::Sender<bool>,
}

impl SmtpServer {
    /// Starts an ordinary server whose first connections follow `scripts`, one each.
    ///
    /// # Errors
    /// Where no port can be opened.
    pub fn start(traits: Traits, scripts: impl IntoIterator<Item = Script>) -> Result<Self> {
        let socket = TcpSocket::new_v4().context("open a socket")?;
        if let Some(bytes) = traits.receive_buffer {
            socket.set_recv_buffer_size(bytes).context("size the socket")?;
        }
        let host = if traits.public { [0, 0, 0, 0] } else { [127, 0, 0, 1] };
        socket.bind(SocketAddr::from((host, 0))).context("bind a port")?;
        let listener = socket.listen(1024).context("listen")?;
        let address = listener.local_addr().context("read the port")?;
        let shared = Arc::new(Shared {
            traits,
            scripts: Mutex::new(scripts.into_iter().collect()),
            record: watch::Sender::default(),
            released: watch::Sender::default(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What it has seen up to now.
    #[must_use]
    pub fn record(&self) -> Record {
        self.shared.record.borrow().clone()
    }

    /// Lets every late answer go.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Waits until the record satisfies `condition`.
    ///
    /// # Errors
    /// Where it does not within half a minute, with the record.
    pub async fn until(&self, condition: impl FnMut(&Record) -> bool) -> Result<Record> {
        watched::until(&self.shared.record, condition).await
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut talks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut number = 0;
        shared.record.send_modify(|record| {
            number = record.connections;
            record.connections += 1;
        });
        let script = shared.scripts.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let shared = shared.clone();
        talks.spawn(async move {
            let ending = talk::serve(stream, number, script.unwrap_or_default(), &shared).await;
            shared.record.send_modify(|record| record.endings.push(ending));
        });
    }
}
