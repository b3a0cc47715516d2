//! Connections that the sandbox can cut: where a real provider's answer would be lost on the way,
//! the socket ends with a reset instead.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The handle by which a request's handler cuts the connection it came on.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Arc<AtomicBool>);

impl Line {
    /// From now on nothing is written: the next try, at the latest the answer of the handler that
    /// calls this, ends the connection with a reset.
    pub(super) fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A listener whose connections can be cut.
#[derive(Debug)]
pub(super) struct LineListener(pub(super) TcpListener);

/// A connection that can be cut.
#[derive(Debug)]
pub(super) struct LineStream {
    stream: TcpStream,
    line: Line,
}

impl LineStream {
    /// Fails if the line is cut, and sees to it that the coming close is a reset.
    fn check(&self) -> io::Result<()> {
        if !self.line.0.load(Ordering::Acquire) {
            return Ok(());
        }
        self.stream.set_zero_linger()?;
        Err(ErrorKind::ConnectionReset.into())
    }
}

impl Listener for LineListener {
    type Io = LineStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LineStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok((stream, address)) => {
                    // Without it an answer may wait for the client's acknowledgement.
                    stream.set_nodelay(true).ok();
                    return (LineStream { stream, line: Line::default() }, address);
                }
                // Out of file descriptors, or the client has gone: neither ends the server.
                Err(error) => {
                    tracing::warn!(%error, "the sandbox could not take a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, LineListener>> for Line {
    fn connect_info(stream: IncomingStream<'_, LineListener>) -> Self {
        stream.io().line.clone()
    }
}

impl AsyncRead for LineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for LineStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
