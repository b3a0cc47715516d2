//! One conversation with the server, phase by phase. Everything up to the body ends in a [`Stop`],
//! which proves that nothing was sent; only [`Session::finish`] may have an unknown end.

use super::endpoint::{Endpoint, Protection};
use super::letter::Letter;
use super::replies;
use super::stop::{Cause, Phase, Stop};
use super::wire::Wire;
use crate::crash::{self, Interrupted};
use crate::message::Redacted;
use crate::provider::Reply;
use mail_send::SmtpClient;
use rustls::pki_types::ServerName;
use smtp_proto::{AUTH_LOGIN, AUTH_PLAIN, EXT_START_TLS, EhloResponse};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// How long a polite end may take.
const QUIT_WAIT: Duration = Duration::from_secs(2);

/// How long to look for what a server said before it closed on us.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// Longer than any wait of ours: mail-send bounds single commands, we bound phases.
const NEVER: Duration = Duration::from_hours(24);

/// The user name and password of an account at the server.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The user name, often an address.
    pub username: Redacted<String>,
    /// The password or key.
    pub password: Redacted<String>,
}

/// Where sessions go and how they introduce themselves.
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) tls: TlsConnector,
    /// Whether a loopback peer must speak TLS too.
    pub(super) tls_on_loopback: bool,
    pub(super) credentials: Option<Credentials>,
    /// What EHLO says; without it, the address literal of our end of the connection.
    pub(super) ehlo_name: Option<String>,
}

/// A session that is signed in, between two messages or inside one.
pub(super) struct Session {
    client: SmtpClient<Wire>,
    offered: EhloResponse<String>,
    /// Messages whose final reply came on this connection.
    pub(super) messages: u32,
}

impl Session {
    /// Connects, greets, brings TLS up and signs in.
    ///
    /// # Errors
    /// The phase that failed, also when `deadline` passed in it.
    pub(super) async fn open(target: &Target, deadline: Instant) -> Result<Self, Stop> {
        let tcp = connect(&target.endpoint, deadline).await?;
        let is_loopback = tcp.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
        let wire = Wire::plain(tcp).map_err(|error| Stop::io(Phase::Connect, &error))?;
        let mut session = Self::over(wire);
        match target.endpoint.protection {
            Protection::Implicit => {
                session = session.secure(target, deadline).await?;
                session.greet(target, deadline).await?;
            }
            Protection::StartTls if !is_loopback || target.tls_on_loopback => {
                session.greet(target, deadline).await?;
                if !session.offered.has_capability(EXT_START_TLS) {
                    return Err(Stop::new(Phase::StartTls, Cause::NoTls));
                }
                session
                    .command(Phase::StartTls, "STARTTLS\r\n", |code| code == 220, deadline)
                    .await?;
                session = session.secure(target, deadline).await?;
                // What was offered in the clear no longer holds (RFC 3207, section 4.2).
                session.introduce(target, deadline).await?;
            }
            Protection::StartTls | Protection::None => session.greet(target, deadline).await?,
        }
        if let Some(credentials) = &target.credentials {
            session.sign_in(credentials, deadline).await?;
        }
        Ok(session)
    }

    fn over(wire: Wire) -> Self {
        let client = SmtpClient { stream: wire, timeout: NEVER };
        Self { client, offered: EhloResponse::new(String::new()), messages: 0 }
    }

    async fn secure(self, target: &Target, deadline: Instant) -> Result<Self, Stop> {
        let phase = Phase::Tls;
        let name = ServerName::try_from(target.endpoint.host.clone())
            .map_err(|_| Stop::new(phase, Cause::Certificate))?;
        let tcp = self.client.stream.into_plain().ok_or(Stop::new(phase, Cause::Garbled))?;
        let stream = timeout_at(deadline, target.tls.connect(name, tcp))
            .await
            .map_err(|_| Stop::new(phase, Cause::Timeout))?
            .map_err(|error| Stop::io(phase, &error))?;
        Ok(Self::over(Wire::tls(stream)))
    }

    async fn greet(&mut self, target: &Target, deadline: Instant) -> Result<(), Stop> {
        let greeting = timeout_at(deadline, self.client.read()).await;
        let greeting = self.understand(Phase::Greeting, greeting)?;
        if greeting.code != 220 {
            return Err(Stop::new(Phase::Greeting, Cause::Answer(greeting)));
        }
        self.introduce(target, deadline).await
    }

    async fn introduce(&mut self, target: &Target, deadline: Instant) -> Result<(), Stop> {
        self.expect_quiet(Phase::Ehlo, deadline).await?;
        let name = match &target.ehlo_name {
            Some(name) => name.clone(),
            None => self.address_literal(),
        };
        let offered = timeout_at(deadline, self.client.ehlo(&name)).await;
        self.offered = self.understand(Phase::Ehlo, offered)?;
        Ok(())
    }

    /// RFC 5321, section 4.1.4: a client without a name of its own gives its address.
    fn address_literal(&self) -> String {
        let local = self.client.stream.tcp().local_addr();
        match local.map(|address| address.ip().to_canonical()) {
            Ok(IpAddr::V6(address)) => format!("[IPv6:{address}]"),
            Ok(IpAddr::V4(address)) => format!("[{address}]"),
            Err(_) => "[127.0.0.1]".to_owned(),
        }
    }

    async fn sign_in(&mut self, credentials: &Credentials, deadline: Instant) -> Result<(), Stop> {
        self.expect_quiet(Phase::Auth, deadline).await?;
        // mail-send begins every mechanism that is offered, and cannot finish others than these.
        self.offered.auth_mechanisms &= AUTH_PLAIN | AUTH_LOGIN;
        let credentials = mail_send::Credentials::new(
            credentials.username.reveal().as_str(),
            credentials.password.reveal().as_str(),
        );
        let signed_in =
            timeout_at(deadline, self.client.authenticate(&credentials, &self.offered)).await;
        let signed_in = signed_in.map(|result| result.map(|_| ()));
        self.understand(Phase::Auth, signed_in)
    }

    /// Announces the sender: the first command of a transaction.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(super) async fn mail(&mut self, letter: &Letter, deadline: Instant) -> Result<(), Stop> {
        let command = letter.mail_command(&self.offered)?;
        self.command(Phase::Mail, &command, is_yes, deadline).await
    }

    /// Names the recipient.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(super) async fn rcpt(&mut self, letter: &Letter, deadline: Instant) -> Result<(), Stop> {
        self.command(Phase::Rcpt, &letter.rcpt_command(), is_yes, deadline).await
    }

    /// Asks for the go-ahead, which only 354 is.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(super) async fn data(&mut self, deadline: Instant) -> Result<(), Stop> {
        self.command(Phase::Data, "DATA\r\n", |code| code == 354, deadline).await
    }

    /// Gives a transaction up that has not come to DATA.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(super) async fn reset(&mut self, deadline: Instant) -> Result<(), Stop> {
        self.command(Phase::Mail, "RSET\r\n", is_yes, deadline).await
    }

    /// Writes the message without what ends it, and makes sure that the server is still listening.
    ///
    /// # Errors
    /// Whatever happens here happens before the server can have seen the end of the data, so it may
    /// not have taken the message (RFC 5321, section 4.1.1.4).
    pub(super) async fn write_body(&mut self, body: &[u8], deadline: Instant) -> Result<(), Stop> {
        let phase = Phase::Body;
        let written = timeout_at(deadline, async {
            let mut stream = Interrupted::new(&mut self.client.stream);
            stream.write_all(body).await?;
            stream.flush().await
        })
        .await
        .map_err(|_| Stop::new(phase, Cause::Timeout))?;
        let last_words_deadline = deadline.min(Instant::now() + LAST_WORDS_WAIT);
        match written {
            Ok(()) => self.expect_quiet(phase, last_words_deadline).await,
            // A server that has had enough says so before it closes.
            Err(error) => match self.unasked(phase, last_words_deadline).await {
                stop @ Stop { cause: Cause::Answer(_), .. } => Err(stop),
                _ => Err(Stop::io(phase, &error)),
            },
        }
    }

    /// The hand-over: the write that carries the final dot, and the wait for the reply, which is
    /// bounded by the caller alone. From its start on, everything but one complete reply that is read
    /// and understood is unknown. The flag says whether the session is in step for another message.
    pub(super) async fn finish(&mut self) -> (Reply, bool) {
        let unknown = |what: &str| (Reply::Unknown(format!("smtp {what} after dot")), false);
        let written = async {
            self.client.stream.write_all(b"\r\n.\r\n").await?;
            self.client.stream.flush().await
        };
        if written.await.is_err() {
            return unknown("connection lost");
        }
        crash::point_after("answer-waiting", self.client.stream.tcp().readable()).await;
        let answer = match self.client.read().await {
            Ok(answer) => answer,
            Err(_) if self.client.stream.ended() => return unknown("connection closed"),
            Err(mail_send::Error::Io(error)) if error.kind() != std::io::ErrorKind::InvalidData => {
                return unknown("connection lost");
            }
            Err(_) => return unknown("unreadable reply"),
        };
        self.messages += 1;
        let more = self.client.stream.unread();
        if !more.is_empty() && !more.starts_with(b"421") {
            return unknown("more than one reply");
        }
        let reply = replies::verdict(&answer);
        let in_step = !matches!(reply, Reply::Unknown(_)) && self.client.stream.is_quiet().await;
        (reply, in_step)
    }

    /// Whether nothing has come that nobody asked for, not even an end.
    pub(super) async fn is_quiet(&mut self) -> bool {
        self.client.stream.is_quiet().await
    }

    /// The version of TLS, if the connection is under it.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        self.client.stream.tls_version()
    }

    /// Says goodbye and closes in the ordinary way. Only for a session without a message under way.
    pub(super) async fn quit(mut self) {
        let deadline = Instant::now() + QUIT_WAIT;
        if self.command(Phase::Mail, "QUIT\r\n", is_yes, deadline).await.is_ok() {
            timeout_at(deadline, self.client.stream.close()).await.ok();
        }
    }

    /// Sends one command and reads its one reply.
    async fn command(
        &mut self,
        phase: Phase,
        command: &str,
        is_expected: fn(u16) -> bool,
        deadline: Instant,
    ) -> Result<(), Stop> {
        self.expect_quiet(phase, deadline).await?;
        let answer = timeout_at(deadline, self.client.cmd(command)).await;
        let answer = self.understand(phase, answer)?;
        if is_expected(answer.code) { Ok(()) } else { Err(Stop::new(phase, Cause::Answer(answer))) }
    }

    /// A reply that is there before the question is not its answer; taking it for one would shift
    /// every verdict after it.
    async fn expect_quiet(&mut self, phase: Phase, deadline: Instant) -> Result<(), Stop> {
        if self.is_quiet().await { Ok(()) } else { Err(self.unasked(phase, deadline).await) }
    }

    /// What the server said without being asked, if it was a refusal: mostly 421 before it closes.
    async fn unasked(&mut self, phase: Phase, deadline: Instant) -> Stop {
        let said = timeout_at(deadline, self.client.read()).await;
        match self.understand(phase, said) {
            Ok(answer) if (400..=599).contains(&answer.code) => {
                Stop::new(phase, Cause::Answer(answer))
            }
            Ok(_) => Stop::new(phase, Cause::Garbled),
            Err(stop) => stop,
        }
    }

    fn understand<T>(
        &self,
        phase: Phase,
        result: Result<mail_send::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, Stop> {
        use mail_send::Error;
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => return Err(Stop::new(phase, Cause::Timeout)),
        };
        Err(match error {
            Error::Io(error) => Stop::io(phase, &error),
            Error::Timeout => Stop::new(phase, Cause::Timeout),
            Error::UnexpectedReply(answer) | Error::AuthenticationFailed(answer) => {
                Stop::new(phase, Cause::Answer(answer))
            }
            Error::UnsupportedAuthMechanism => Stop::new(phase, Cause::NoAuth),
            _ if self.client.stream.ended() => Stop::new(phase, Cause::Closed),
            _ => Stop::new(phase, Cause::Garbled),
        })
    }
}

fn is_yes(code: u16) -> bool {
    (200..=299).contains(&code)
}

/// Tries the host's addresses one after the other, each with a fair share of the time left.
async fn connect(endpoint: &Endpoint, deadline: Instant) -> Result<TcpStream, Stop> {
    let stop = |cause| Stop::new(Phase::Connect, cause);
    let found = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port));
    let addresses: Vec<SocketAddr> = bounded(deadline, found)
        .await
        .ok_or_else(|| stop(Cause::Timeout))?
        .map_err(|_| stop(Cause::Dns))?
        .collect();
    let mut last = stop(Cause::Dns);
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let now = Instant::now();
        let share = now + deadline.saturating_duration_since(now) / left;
        last = match bounded(share, TcpStream::connect(address)).await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => Stop::io(Phase::Connect, &error),
            None => stop(Cause::Timeout),
        };
    }
    Err(last)
}

async fn bounded<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    timeout_at(deadline, future).await.ok()
}
