//! A stand-in for Amazon SNS: signs messages as it does
//! (<https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html>), and serves its
//! certificate by HTTPS.

use crate::authority::Authority;
use anyhow::{Context, Result};
use data_encoding::BASE64;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, date_time_ymd};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A key of these tests alone: no library here makes RSA keys.
const KEY: &str = include_str!("sns/key.pem");

/// Where SNS has its certificate for the region of the tests.
pub const CERTIFICATE_URL: &str =
    "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem";

/// The fields that are signed, in their order.
const SIGNED: [&str; 8] =
    ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];

/// Signs with the key of these tests.
pub struct Sns {
    key: RsaKeyPair,
    certificate: String,
}

impl Sns {
    /// SNS with a certificate that is valid.
    ///
    /// # Errors
    /// Where the key or the certificate cannot be made.
    pub fn new() -> Result<Self> {
        Self::valid_until(4000)
    }

    /// SNS with a certificate that ends with the year before `year`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn valid_until(year: i32) -> Result<Self> {
        let pair = KeyPair::from_pkcs8_pem_and_sign_algo(KEY, &PKCS_RSA_SHA256)?;
        let mut params = CertificateParams::new(vec!["sns.amazonaws.com".to_owned()])?;
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&pair)?.pem();
        let der = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes())?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der());
        let key = key.ok().context("the key is not one that ring takes")?;
        Ok(Self { key, certificate })
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The body of a notification that was published to `topic` at `at`.
    ///
    /// # Errors
    /// Where it cannot be signed.
    pub fn notification(&self, topic: &str, id: &str, at: &str, message: &str) -> Result<String> {
        let mut envelope = json!({
            "Type": "Notification",
            "MessageId": id,
            "TopicArn": topic,
            "Subject": "Amazon SES Email Event Notification",
            "Message": message,
            "Timestamp": at,
            "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
        });
        self.sign(&mut envelope)?;
        Ok(envelope.to_string())
    }

    /// Signs `envelope` by signature version 2, with [`CERTIFICATE_URL`].
    ///
    /// # Errors
    /// Where it cannot be signed.
    pub fn sign(&self, envelope: &mut Value) -> Result<()> {
        let text = |name: &&str| {
            let value = envelope[name].as_str()?;
            Some(format!("{name}\n{value}\n"))
        };
        let signed: String = SIGNED.iter().filter_map(text).collect();
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .ok()
            .context("sign")?;
        envelope["SignatureVersion"] = "2".into();
        envelope["Signature"] = BASE64.encode(&signature).into();
        envelope["SigningCertURL"] = CERTIFICATE_URL.into();
        Ok(())
    }
}

/// Serves pages by HTTPS, as one host.
pub struct Pages {
    authority: Authority,
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Pages {
    /// Serves `pages`, by path, as `host`; anything else is not found.
    ///
    /// # Errors
    /// Where it cannot listen.
    pub async fn serve(host: &str, pages: BTreeMap<String, String>) -> Result<Self> {
        let authority = Authority::of(host)?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (acceptor, record) = (authority.acceptor().clone(), Arc::clone(&asked));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust the certificate goes away.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte).await, Ok(1))
                {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let (status, page) = match pages.get(&path) {
                    Some(page) => ("200 OK", page.as_str()),
                    None => ("404 Not Found", ""),
                };
                record.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                    page.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Ok(Self { authority, port, asked, serving })
    }

    /// Where it listens, on loopback.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Who vouches for it.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The heads of the requests that came so far.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
