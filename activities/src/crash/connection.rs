//! A connection with two crash points: in the middle of the first thing written on it, and when the
//! answer is there and nobody has looked at it.

use super::{is_armed, point};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The connection `S`, byte for byte as it is unless one of the points is armed.
pub(crate) struct Interrupted<S> {
    inner: S,
    written: bool,
}

impl<S> Interrupted<S> {
    pub(crate) const fn new(inner: S) -> Self {
        Self { inner, written: false }
    }

    /// Whether the next write is to be cut in half.
    fn halves(&self) -> bool {
        !self.written && is_armed("half-written")
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Interrupted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, out))?;
        if self.written && out.filled().len() > before {
            point("answer-waiting");
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Interrupted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let halves = self.halves();
        let bytes = if halves { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
        let length = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.written = true;
        if halves {
            point("half-written");
        }
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, bytes))?;
        self.written = true;
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        // Half of one buffer is half of the request.
        !self.halves() && self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
