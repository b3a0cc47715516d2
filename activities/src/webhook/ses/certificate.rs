//! The certificates that SNS signs with: fetched once each, and kept.
//!
//! A certificate is trusted because it came over TLS, verified as everywhere, from SNS's own host and
//! a path that holds nothing else. SNS serves the certificate alone, without those that vouch for it,
//! so no chain can be built from it; that it is valid today is checked.

use super::super::Refused;
use super::fetch::Fetch;
use super::sns::Envelope;
use data_encoding::BASE64;
use jiff::Timestamp;
use ring::signature::{RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    UnixTime, alg_id,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use webpki::ring::RSA_PKCS1_2048_8192_SHA256;
use webpki::{EndEntityCert, KeyUsage};

/// How many are kept. SNS has one a region at a time.
const KEPT_MAX: usize = 16;

/// The certificates seen so far, by where they are.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    kept: Mutex<BTreeMap<String, Arc<SigningCertificate>>>,
    /// One is fetched at a time.
    fetching: tokio::sync::Mutex<()>,
}

/// A certificate of SNS.
#[derive(Debug)]
pub(super) struct SigningCertificate(CertificateDer<'static>);

impl Certificates {
    /// The certificate that `envelope` names.
    ///
    /// # Errors
    /// [`Refused::Unsigned`] for an address that is not SNS's, [`Refused::NotNow`] where it does not
    /// give the certificate.
    pub(super) async fn get(
        &self,
        envelope: &Envelope,
        fetch: &dyn Fetch,
    ) -> Result<Arc<SigningCertificate>, Refused> {
        let url = envelope.certificate().ok_or(Refused::Unsigned)?;
        if let Some(certificate) = self.kept(url.as_str()) {
            return Ok(certificate);
        }
        let _turn = self.fetching.lock().await;
        if let Some(certificate) = self.kept(url.as_str()) {
            return Ok(certificate);
        }
        let pem = fetch.get(&url).await.map_err(|code| {
            tracing::warn!(%url, code, "a signing certificate of SNS was not fetched");
            Refused::NotNow
        })?;
        let certificate = Arc::new(SigningCertificate::read(&pem).ok_or_else(|| {
            tracing::warn!(%url, "what SNS gave is not a signing certificate");
            Refused::NotNow
        })?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(url.into(), Arc::clone(&certificate));
        Ok(certificate)
    }

    fn kept(&self, url: &str) -> Option<Arc<SigningCertificate>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }
}

impl SigningCertificate {
    /// The first certificate in `pem`.
    fn read(pem: &[u8]) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem).ok()?;
        EndEntityCert::try_from(&der).ok()?;
        Some(Self(der.into_owned()))
    }

    /// Checks the signature of `envelope` with the key of this certificate, which must be valid `now`.
    ///
    /// # Errors
    /// [`Refused::Unsigned`] for a signature of an unknown form, [`Refused::NotOfCertificate`] for
    /// one of another key, or of a certificate that is not valid now.
    pub(super) fn verify(&self, envelope: &Envelope, now: Timestamp) -> Result<(), Refused> {
        let algorithm: &dyn SignatureVerificationAlgorithm =
            match envelope.signature_version.as_str() {
                "1" => &RsaSha1,
                "2" => RSA_PKCS1_2048_8192_SHA256,
                _ => return Err(Refused::Unsigned),
            };
        let signature =
            BASE64.decode(envelope.signature.as_bytes()).map_err(|_| Refused::Unsigned)?;
        let certificate =
            EndEntityCert::try_from(&self.0).map_err(|_| Refused::NotOfCertificate)?;
        if !is_valid(&certificate, now) {
            return Err(Refused::NotOfCertificate);
        }
        let signed = envelope.signed();
        certificate
            .verify_signature(algorithm, signed.as_bytes(), &signature)
            .map_err(|_| Refused::NotOfCertificate)
    }
}

/// Whether `now` lies within the certificate's validity. It is the first thing that is asked on the
/// way to an authority, of which none is given here.
fn is_valid(certificate: &EndEntityCert<'_>, now: Timestamp) -> bool {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let algorithms = [RSA_PKCS1_2048_8192_SHA256];
    let usage = KeyUsage::server_auth();
    let answer = certificate.verify_for_usage(&algorithms, &[], &[], now, usage, None, None);
    !matches!(
        answer.map(drop),
        Err(webpki::Error::CertExpired { .. }
            | webpki::Error::CertNotValidYet { .. }
            | webpki::Error::InvalidCertValidity
            | webpki::Error::BadDerTime)
    )
}

/// RSA with SHA-1, which SNS signs with by default (signature version 1).
#[derive(Debug)]
struct RsaSha1;

/// The algorithm `sha1WithRSAEncryption` with its empty parameters (RFC 3279, section 2.2.1).
const SHA1_WITH_RSA: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
]);

impl SignatureVerificationAlgorithm for RsaSha1 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let algorithm = &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        UnparsedPublicKey::new(algorithm, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        SHA1_WITH_RSA
    }
}
