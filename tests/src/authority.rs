//! A certificate authority of the test's own.

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tempfile::NamedTempFile;
use tokio_rustls::TlsAcceptor;

/// An authority, with its certificate in a file for the client and a server certificate for
/// `localhost`, or another host.
pub struct Authority {
    file: NamedTempFile,
    acceptor: TlsAcceptor,
    pem: Pem,
    client: Pair,
}

/// A certificate and its key, each in a file.
#[derive(Debug)]
pub struct Pair {
    certificate: NamedTempFile,
    key: NamedTempFile,
}

impl Pair {
    fn write(certificate: &str, key: &str) -> Result<Self> {
        Ok(Self { certificate: in_a_file(certificate)?, key: in_a_file(key)? })
    }

    /// The file with the certificate.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        self.certificate.path()
    }

    /// The file with its key.
    #[must_use]
    pub fn key(&self) -> &Path {
        self.key.path()
    }
}

fn in_a_file(text: &str) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("make the file")?;
    file.write_all(text.as_bytes()).context("write the file")?;
    file.flush().context("write the file")?;
    Ok(file)
}

/// The same as texts, for a server that is a program of its own.
#[derive(Clone)]
pub(crate) struct Pem {
    /// The authority's certificate.
    pub(crate) authority: String,
    /// The server's certificate.
    pub(crate) certificate: String,
    /// The server's key.
    pub(crate) key: String,
}

impl Authority {
    /// Makes a new one, whose server certificate is for `localhost` only, by name and not by
    /// address.
    ///
    /// # Errors
    /// Where keys, certificates or the file cannot be made.
    pub fn new() -> Result<Self> {
        Self::of("localhost")
    }

    /// Makes a new one, whose server certificate is for `host` only.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(host: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let file = in_a_file(&issuer.pem())?;
        let client_key = KeyPair::generate()?;
        let client = CertificateParams::new(vec!["client.example".to_owned()])?
            .signed_by(&client_key, &issuer)
            .context("sign the client's certificate")?;
        let client = Pair::write(&client.pem(), &client_key.serialize_pem())?;

        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![host.to_owned()])?
            .signed_by(&key, &issuer)
            .context("sign the server's certificate")?;
        let pem = Pem {
            authority: issuer.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?,
        )?;
        Ok(Self { file, acceptor: TlsAcceptor::from(Arc::new(config)), pem, client })
    }

    /// The file with the authority's certificate.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.file.path()
    }

    /// A certificate for a client, by this authority.
    #[must_use]
    pub const fn client(&self) -> &Pair {
        &self.client
    }

    pub(crate) fn pem(&self) -> &Pem {
        &self.pem
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("file", &self.file.path()).finish_non_exhaustive()
    }
}
