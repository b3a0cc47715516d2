//! The socket under a session, plain or TLS. It gives replies out one line at a time, so that
//! whatever a server sends beyond the reply that was asked for stays visible, and it ends by a reset
//! wherever nobody closed it on purpose.

use socket2::SockRef;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Longest reply line taken; RFC 5321, section 4.5.3.1.5 asks for 512.
const LINE_MAX_BYTES: usize = 4096;

/// A connection to the server.
pub(super) struct Wire {
    stream: Stream,
    /// Bytes received and not yet given out.
    buffer: Vec<u8>,
    /// How many bytes at the start of `buffer` belong to a line that was checked.
    checked: usize,
    /// The code of the reply whose lines are being given out.
    code: Option<[u8; 3]>,
    /// The peer has said that nothing more will come.
    ended: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// Takes a fresh connection. From here on dropping it sends a reset.
    ///
    /// # Errors
    /// Where the socket refuses the option.
    pub(super) fn plain(stream: TcpStream) -> io::Result<Self> {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Stream::Plain(stream)))
    }

    /// Takes a connection whose TLS handshake is done. Its socket came from [`Wire::into_plain`].
    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self::over(Stream::Tls(Box::new(stream)))
    }

    fn over(stream: Stream) -> Self {
        Self { stream, buffer: Vec::new(), checked: 0, code: None, ended: false }
    }

    /// Gives the socket out for a TLS handshake, unless it is under TLS already or the server has
    /// sent something in advance, which would then pass for protected (CVE-2011-0411).
    pub(super) fn into_plain(self) -> Option<TcpStream> {
        match self.stream {
            Stream::Plain(stream) if self.buffer.is_empty() => Some(stream),
            _ => None,
        }
    }

    /// The TCP connection below.
    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The version of TLS, if the connection is under it.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        let Stream::Tls(stream) = &self.stream else { return None };
        Some(match stream.get_ref().1.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
            _ => "TLS 1.2",
        })
    }

    /// Whether the peer has ended its side.
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// What has come beyond the lines that were given out.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether there is neither an unread byte nor an end: the state in which a connection waits for
    /// the next command. What is still under way cannot be seen.
    pub(super) async fn is_quiet(&mut self) -> bool {
        if !self.buffer.is_empty() || self.ended {
            return false;
        }
        // Lets the runtime look at its sockets before we look at ours.
        tokio::task::yield_now().await;
        let mut look =
            |context: &mut Context<'_>| Poll::Ready(self.poll_fill(context).is_pending());
        std::future::poll_fn(&mut look).await
    }

    /// Closes in the ordinary way, without the reset.
    pub(super) async fn close(mut self) {
        let ordinary = SockRef::from(self.tcp()).set_linger(None);
        if ordinary.is_ok() {
            self.shutdown().await.ok();
        }
    }

    /// Receives more; no byte received means that the peer has ended.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut chunk = [0_u8; 1024];
        let mut read = ReadBuf::new(&mut chunk);
        ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, &mut read),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, &mut read),
        })?;
        self.ended = read.filled().is_empty();
        self.buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(()))
    }

    /// The length of the next whole line, after a look at it: all lines of one reply must carry the
    /// same code (RFC 5321, section 4.2.1), or no verdict may be built on it.
    fn check_line(&mut self) -> io::Result<Option<usize>> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            if self.buffer.len() > LINE_MAX_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "reply line too long"));
            }
            return Ok(None);
        };
        let code = self.buffer.first_chunk::<3>().copied();
        if self.code.is_some() && self.code != code {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "codes of one reply differ"));
        }
        self.code = if self.buffer.get(3) == Some(&b'-') { code } else { None };
        Ok(Some(end + 1))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        while wire.checked == 0 {
            if let Some(length) = wire.check_line()? {
                wire.checked = length;
            } else if wire.ended {
                // A line without its end is no line: half a reply proves nothing.
                return Poll::Ready(Ok(()));
            } else {
                ready!(wire.poll_fill(context))?;
            }
        }
        let length = wire.checked.min(out.remaining());
        out.put_slice(&wire.buffer[..length]);
        wire.buffer.drain(..length);
        wire.checked -= length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
