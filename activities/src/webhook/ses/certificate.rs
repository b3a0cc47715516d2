//! The certificates that SNS signs with: fetched once each, and kept.
//!
//! A certificate is trusted because it came over TLS, verified as everywhere, from SNS's own host and
//! a path that holds nothing else. SNS serves the certificate alone, without those that vouch for it,
//! so no chain can be built from it; that it is valid today is checked.
//!
//! What names the certificate is not verified yet, so whoever knows a topic's ARN can name as many as
//! they like. Requests that name the same one wait for one fetch, few are fetched at once, and one more
//! is refused for now rather than made to wait behind them: SNS sends its own again. A fetch that
//! failed is not tried again at once.

use super::super::{Refused, Seldom};
use super::fetch::Fetch;
use super::sns::Envelope;
use data_encoding::BASE64;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    UnixTime, alg_id,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use webpki::ring::RSA_PKCS1_2048_8192_SHA256;
use webpki::{EndEntityCert, KeyUsage};

/// How many are kept. SNS has one a region at a time.
const KEPT_MAX: usize = 16;

/// How many are fetched at once.
const FETCHED_AT_ONCE: usize = 8;

/// How long a certificate that SNS says it does not have is not asked for again.
const ABSENT_FOR: SignedDuration = SignedDuration::from_mins(1);

/// How long one is not asked for again after SNS gave no answer, or that it cannot now: less than the
/// 20 seconds that SNS waits by default before it sends a message again.
const UNANSWERED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// How many failures are remembered.
const FAILED_MAX: usize = 1_000;

/// The certificates seen so far.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    known: Mutex<Known>,
    failures: Seldom,
}

/// All by where the certificate is.
#[derive(Debug, Default)]
struct Known {
    kept: BTreeMap<String, Arc<SigningCertificate>>,
    /// When a fetch that failed may be tried again.
    failed: BTreeMap<String, Timestamp>,
    /// Whoever fetches one holds its lock.
    fetching: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
}

/// A certificate of SNS.
#[derive(Debug)]
pub(super) struct SigningCertificate(CertificateDer<'static>);

impl Certificates {
    /// The certificate that `envelope` names, asked for at `now`.
    ///
    /// # Errors
    /// [`Refused::Unsigned`] for an address that is not SNS's, [`Refused::NotNow`] where it does not
    /// give the certificate, did not lately, or too many others are being fetched.
    pub(super) async fn get(
        &self,
        envelope: &Envelope,
        fetch: &dyn Fetch,
        now: Timestamp,
    ) -> Result<Arc<SigningCertificate>, Refused> {
        let url = envelope.certificate().ok_or(Refused::Unsigned)?;
        if let Some(known) = self.known().get(url.as_str(), now) {
            return known;
        }
        let fetching = self.known().turn(url.as_str()).ok_or(Refused::NotNow)?;
        let _turn = fetching.lock().await;
        // Whoever had the turn before has fetched it, or tried to.
        if let Some(known) = self.known().get(url.as_str(), now) {
            return known;
        }
        let answer = fetch.get(&url).await;
        match answer.and_then(|pem| SigningCertificate::read(&pem).ok_or("no certificate".into())) {
            Ok(certificate) => Ok(self.known().keep(url.into(), certificate)),
            Err(code) => {
                if let Some(count) = self.failures.count(Instant::now()) {
                    tracing::warn!(%url, code, count, "signing certificates of SNS were not fetched");
                }
                let is_absent = ["http 403", "http 404", "no certificate"].contains(&code.as_str());
                let pause = if is_absent { ABSENT_FOR } else { UNANSWERED_FOR };
                self.known().fail(url.into(), now, pause);
                Err(Refused::NotNow)
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What is known of the certificate at `url`; `None` if it is to be fetched.
    fn get(&self, url: &str, now: Timestamp) -> Option<Result<Arc<SigningCertificate>, Refused>> {
        if let Some(certificate) = self.kept.get(url) {
            return Some(Ok(Arc::clone(certificate)));
        }
        let pause = self.failed.get(url)?.duration_since(now);
        // It is longer only where the clock was set back.
        (pause.is_positive() && pause <= ABSENT_FOR * 2).then_some(Err(Refused::NotNow))
    }

    /// The lock to fetch the certificate at `url` under; `None` while too many others are fetched.
    fn turn(&mut self, url: &str) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        if !self.fetching.contains_key(url) && self.fetching.len() >= FETCHED_AT_ONCE {
            return None;
        }
        Some(Arc::clone(self.fetching.entry(url.to_owned()).or_default()))
    }

    fn keep(&mut self, url: String, certificate: SigningCertificate) -> Arc<SigningCertificate> {
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.failed.remove(&url);
        Arc::clone(self.kept.entry(url).insert_entry(Arc::new(certificate)).get())
    }

    fn fail(&mut self, url: String, now: Timestamp, pause: SignedDuration) {
        self.failed.retain(|_, until| now < *until);
        if self.failed.len() >= FAILED_MAX {
            self.failed.clear();
        }
        self.failed.insert(url, now.saturating_add(pause).unwrap_or(now));
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
