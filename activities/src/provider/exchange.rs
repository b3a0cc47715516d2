//! One HTTP/1.1 request on a connection of its own, for adapters that must know at every moment
//! whether anything was handed over.
//!
//! A pooled client connects, queues, reuses and retries where nobody sees it. Here the connection
//! is opened before the intent, carries one request, and lives inside the future that waits for the
//! answer: dropping that future closes the socket at once, and with a reset, so that bytes not yet
//! sent never are. No redirect is followed and nothing is retried.

use crate::crash::Interrupted;
use digest_workflows::operation::{Failure, FailureClass};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An answer's body may have this many bytes; of a longer one only the status counts.
pub const BODY_BYTES_MAX: usize = 10_000_000;

/// How long the body may take, once the status has come.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// How many records of TLS may arrive between the handshake and the request.
const TLS_RECORDS_MAX: usize = 64;

const NOT_WRITTEN: NoAnswer = NoAnswer::NotWritten("http connection lost before the request");

/// An open connection on which nothing was sent yet.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What the server answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; `None` when it was cut off, came too slowly ([`BODY_TIME_MAX`]) or was too long
    /// ([`BODY_BYTES_MAX`]). The status holds all the same.
    pub body: Option<Bytes>,
}

/// Why there is no answer. The text is a short code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The connection was lost before the first byte of the request was written: not sent.
    #[error("{0}")]
    NotWritten(&'static str),
    /// The connection was lost later: the server may have the whole request.
    #[error("{0}")]
    Lost(&'static str),
}

impl Connection {
    /// Connects to `host` and `port` within `within`.
    ///
    /// # Errors
    /// [`FailureClass::Transport`] with a code such as `http connect refused`; nothing was sent.
    pub async fn open(host: &str, port: u16, within: Duration) -> Result<Self, Failure> {
        let failed = |code| Failure::new(FailureClass::Transport, code);
        let stream = timeout(within, TcpStream::connect((host, port)))
            .await
            .map_err(|_| failed("http connect timeout"))?
            .map_err(|error| failed(connect_code(&error)))?;
        // From here on every close is a reset, also one by a panic or a dropped future.
        stream.set_zero_linger().map_err(|_| failed("http connect lost"))?;
        stream.set_nodelay(true).map_err(|_| failed("http connect lost"))?;
        Ok(Self { stream: Stream::Plain(stream) })
    }

    /// Brings TLS up as `host`, within `within`.
    ///
    /// # Errors
    /// [`FailureClass::Configuration`] with the code `http tls certificate` for a certificate that is
    /// not trusted or not for `host`, [`FailureClass::Transport`] otherwise; nothing was sent.
    pub async fn secure(
        self,
        tls: &TlsConnector,
        host: &str,
        within: Duration,
    ) -> Result<Self, Failure> {
        let failed = |class, code| Failure::new(class, code);
        let certificate = || failed(FailureClass::Configuration, "http tls certificate");
        let Stream::Plain(tcp) = self.stream else { return Ok(self) };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| certificate())?;
        let stream = timeout(within, tls.connect(name, tcp))
            .await
            .map_err(|_| failed(FailureClass::Transport, "http tls timeout"))?
            .map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(_)) => certificate(),
                _ => failed(FailureClass::Transport, "http tls failed"),
            })?;
        Ok(Self { stream: Stream::Tls(Box::new(stream)) })
    }

    /// Sends `request`, which needs a `Host` header, and waits for the answer as long as the caller
    /// keeps polling. The first byte is written no earlier than the first poll.
    ///
    /// # Errors
    /// [`NoAnswer`], which says whether anything was written.
    pub async fn exchange(mut self, request: Request<Full<Bytes>>) -> Result<Answer, NoAnswer> {
        if !self.is_quiet().await {
            return Err(NOT_WRITTEN);
        }
        match self.stream {
            Stream::Plain(stream) => converse(stream, request).await,
            Stream::Tls(stream) => converse(*stream, request).await,
        }
    }

    /// Whether the connection is open and the server has said nothing, as it must be before a
    /// request. A server that gave the idle connection up is seen here, before it is a doubt.
    async fn is_quiet(&mut self) -> bool {
        match &mut self.stream {
            Stream::Plain(stream) => nothing_arrived(stream),
            Stream::Tls(stream) => {
                for _ in 0..TLS_RECORDS_MAX {
                    if nothing_arrived(stream.get_ref().0) {
                        return true;
                    }
                    if stream.get_ref().0.readable().await.is_err() {
                        return false;
                    }
                    // Session tickets come after the handshake and say nothing about the request.
                    let mut byte = [0];
                    let mut buffer = ReadBuf::new(&mut byte);
                    let read = poll_fn(|context| {
                        Poll::Ready(Pin::new(&mut **stream).poll_read(context, &mut buffer))
                    });
                    if read.await.is_ready() {
                        return false;
                    }
                }
                false
            }
        }
    }
}

fn nothing_arrived(stream: &TcpStream) -> bool {
    let peeked = recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(peeked, Err(Errno::AGAIN))
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Answer, NoAnswer> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(Interrupted::new(stream))).await.map_err(|_| NOT_WRITTEN)?;
    let answer = async move {
        let response = sender.try_send_request(request).await.map_err(|mut error| {
            // The request comes back only if not one byte of it was written.
            if error.take_message().is_some() {
                NOT_WRITTEN
            } else {
                NoAnswer::Lost(lost_code(error.error()))
            }
        })?;
        Ok(read(response).await)
    };
    // The connection ends first when the server closes it; what it had read still arrives.
    let (answer, connection) = (Box::pin(answer), Box::pin(connection));
    match futures::future::select(answer, connection).await {
        futures::future::Either::Left((answer, _)) => answer,
        futures::future::Either::Right((_, answer)) => answer.await,
    }
}

async fn read(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = timeout(BODY_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
    Answer { status: head.status, headers: head.headers, body }
}

fn connect_code(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ConnectionRefused => "http connect refused",
        ErrorKind::ConnectionReset => "http connect reset",
        ErrorKind::TimedOut => "http connect timeout",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "http connect unreachable",
        // The resolver's errors have neither a kind of their own nor an error number.
        _ if error.raw_os_error().is_none() => "http host not found",
        _ => "http connect failed",
    }
}

fn lost_code(error: &hyper::Error) -> &'static str {
    let kind = error.source().and_then(|source| source.downcast_ref()).map(io::Error::kind);
    match kind {
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => "http connection reset",
        _ if error.is_parse() => "http answer malformed",
        _ if error.is_incomplete_message() => "http connection closed without an answer",
        _ => "http connection lost",
    }
}
