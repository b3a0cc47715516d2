//! TLS towards a provider: which certificates are trusted. Only ring, always TLS 1.2 or newer,
//! and no way to switch verification off.

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file cannot be read.
    #[error("cannot read certificates from provider.ca_file {path}: {reason}; give a PEM file")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The CA file was read and has no certificate in it.
    #[error("provider.ca_file {0} holds no certificate; give a PEM file of one or more CAs")]
    CaFileEmpty(PathBuf),
    /// TLS could not be set up at all.
    #[error("cannot set up TLS: {0}")]
    SetUp(String),
}

/// A connector that trusts the platform's certificate authorities and, beside them, those in
/// `ca_file`.
///
/// # Errors
/// [`TlsError::CaFile`] and [`TlsError::CaFileEmpty`] for a file that gives no certificate,
/// [`TlsError::SetUp`] where rustls refuses one.
pub(crate) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let extra = ca_file.map(read_authorities).transpose()?.unwrap_or_default();
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::SetUp(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(extra, crypto)?)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error: rustls::pki_types::pem::Error| TlsError::CaFile {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    if certificates.is_empty() {
        return Err(TlsError::CaFileEmpty(path.to_owned()));
    }
    Ok(certificates)
}

/// The platform's verifier. A slim container has no authorities at all; there, Mozilla's list that is
/// compiled in takes their place.
fn verifier(
    extra: Vec<CertificateDer<'static>>,
    crypto: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    if let Ok(verifier) = Verifier::new(crypto.clone()) {
        if extra.is_empty() {
            return Ok(Arc::new(verifier));
        }
        return match Verifier::new_with_extra_roots(extra, crypto) {
            Ok(verifier) => Ok(Arc::new(verifier)),
            Err(error) => Err(TlsError::SetUp(error.to_string())),
        };
    }
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in extra {
        roots.add(certificate).map_err(|error| TlsError::SetUp(error.to_string()))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto)
        .build()
        .map_err(|error| TlsError::SetUp(error.to_string()))?;
    Ok(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_ca_file_without_a_certificate_is_refused_by_name() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "not a certificate").unwrap();
        let refused = connector(Some(file.path())).err().unwrap();
        assert!(matches!(refused, TlsError::CaFileEmpty(_)), "{refused}");
        assert!(refused.to_string().contains(&file.path().display().to_string()));
        let missing = connector(Some(Path::new("/nowhere/ca.pem"))).err().unwrap();
        assert!(matches!(missing, TlsError::CaFile { .. }), "{missing}");
    }

    #[test]
    fn the_platform_is_trusted_without_a_file() {
        assert!(connector(None).is_ok());
    }
}
