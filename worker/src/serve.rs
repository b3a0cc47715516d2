//! Serving HTTP to strangers: whoever connects and stays silent, sends slowly or does not read costs a
//! bounded number of connections for a bounded time, and the process that sends messages keeps its
//! file descriptors and its memory.

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// The buffer that a connection's requests are read with; a head must fit into it.
const BUFFER_BYTES_MAX: usize = 64 * 1_024;

/// How long to wait after the machine had no connection to give.
const PAUSE: Duration = Duration::from_secs(1);

/// What strangers may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many connections are open at once; the next waits in the kernel's queue.
    pub(crate) connections: usize,
    /// How long a connection may take to send the next head, silence before it included.
    pub(crate) head: Duration,
    /// How long a connection lives, before it is ended after the request that it is at.
    pub(crate) connection: Duration,
    /// How long the last request of a connection may take, its answer read.
    pub(crate) last_request: Duration,
}

/// Serves `app` on `listener` within `limits`. Dropped, it takes no further connection, and those that
/// are open end after the request that they are at.
pub(crate) async fn serve(listener: TcpListener, app: Router, limits: Limits) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (_serving, ended) = watch::channel(());
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let (stream, from) = accept(&listener).await;
        let (app, ended) = (app.clone().layer(Extension(ConnectInfo(from))), ended.clone());
        tokio::spawn(async move {
            connection(stream, app, limits, ended).await;
            drop(slot);
        });
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // It was the other side's.
            Err(error)
                if [ConnectionAborted, ConnectionRefused, ConnectionReset]
                    .contains(&error.kind()) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted; trying again");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn connection(
    stream: TcpStream,
    app: Router,
    limits: Limits,
    mut ended: watch::Receiver<()>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    // How a connection of a stranger fails is nothing to tell.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ended.changed() => {}
        () = sleep(limits.connection) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.last_request, connection).await;
}

/// `app`, which takes so many `requests` at once; a further one waits for its turn. Each has `time` for
/// all of it, so that a slow sender does not keep a turn for ever.
pub(crate) fn in_turns(app: Router, requests: usize, time: Duration) -> Router {
    let turns = Arc::new(Semaphore::new(requests));
    app.layer(from_fn(move |request: Request, next: Next| {
        let turns = Arc::clone(&turns);
        async move {
            let answer = timeout(time, async {
                let _turn = turns.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
                Ok(next.run(request).await)
            });
            answer.await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
        }
    }))
}

#[cfg(test)]
mod tests;
