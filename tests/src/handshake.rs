//! A server that asks whoever connects for a certificate, and tells what it got to see.

use crate::authority::Authority;
use anyhow::{Context, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// How long it waits for whoever has connected.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the server saw of the first connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No handshake came about, so nothing was said under it.
    NoHandshake,
    /// A client of the authority, by its certificate, and whether it said anything.
    Client {
        /// Whether it said anything.
        spoke: bool,
    },
}

/// The server, which takes one connection.
pub struct Asking {
    address: SocketAddr,
    seen: JoinHandle<Result<Seen>>,
}

impl Asking {
    /// Starts one on loopback, with the authority's certificate for a server, for HTTP/2. It asks for a
    /// client's certificate by the same authority.
    ///
    /// # Errors
    /// Where the certificates cannot be used or nothing can be listened on.
    pub async fn start(authority: &Authority) -> Result<Self> {
        let pem = authority.pem();
        let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&pem.authority)?)?;
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&ring))
                .build()
                .context("verify clients")?;
        let mut config = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate(&pem.certificate)?],
                PrivateKeyDer::from_pem_slice(pem.key.as_bytes())?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = tokio::spawn(greet(listener, TlsAcceptor::from(Arc::new(config))));
        Ok(Self { address, seen })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it saw.
    ///
    /// # Errors
    /// Where nobody has connected in time.
    pub async fn seen(self) -> Result<Seen> {
        tokio::time::timeout(PATIENCE, self.seen).await.context("nobody has connected")??
    }
}

async fn greet(listener: TcpListener, acceptor: TlsAcceptor) -> Result<Seen> {
    let (stream, _) = listener.accept().await?;
    let Ok(Ok(mut session)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else {
        return Ok(Seen::NoHandshake);
    };
    let mut first = [0; 1];
    let read = tokio::time::timeout(PATIENCE, session.read(&mut first)).await;
    Ok(Seen::Client { spoke: matches!(read, Ok(Ok(1))) })
}
