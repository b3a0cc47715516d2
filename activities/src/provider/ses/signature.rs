//! Signature Version 4, with which AWS wants every request signed
//! (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>).
//!
//! Deliberately small: paths that need no encoding, headers without inner runs of spaces, and a body
//! whose hash is known, which is all that digestd sends. The signature holds for five minutes, and
//! says nothing about the secret.

use crate::message::Redacted;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Who signs, and for what.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) access_key_id: Redacted<String>,
    pub(super) secret: Redacted<String>,
    pub(super) region: String,
    pub(super) service: &'static str,
}

/// The request could not be signed: a credential or a header holds what no header may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSignable;

impl Signer {
    /// Adds the date and the signature to `request`, whose body is `body`, as of `now`. Every header
    /// that it has by then is signed.
    pub(super) fn sign(
        &self,
        request: &mut Request<Full<Bytes>>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), NotSignable> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let date = time.get(..8).unwrap_or_default();
        let value = HeaderValue::from_str(&time).map_err(|_| NotSignable)?;
        request.headers_mut().insert(HeaderName::from_static("x-amz-date"), value);
        let (canonical, signed) = canonical(request, body)?;
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let hash = HEXLOWER.encode(&Sha256::digest(canonical));
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
        let mut key = format!("AWS4{}", self.secret.reveal()).into_bytes();
        for part in [date, &self.region, self.service, "aws4_request", &text] {
            key = mac(&key, part)?;
        }
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed}, Signature={}",
            self.access_key_id.reveal(),
            HEXLOWER.encode(&key)
        );
        let mut value = HeaderValue::from_str(&authorization).map_err(|_| NotSignable)?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(())
    }
}

/// The request in the form that is hashed, and the names of its headers.
fn canonical(request: &Request<Full<Bytes>>, body: &[u8]) -> Result<(String, String), NotSignable> {
    let mut headers = Vec::new();
    for (name, value) in request.headers() {
        let value = value.to_str().map_err(|_| NotSignable)?;
        headers.push((name.as_str(), value.trim()));
    }
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let lines = lines.concat();
    let mut query: Vec<&str> = request.uri().query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        request.method(),
        request.uri().path(),
        query.join("&"),
        HEXLOWER.encode(&Sha256::digest(body))
    );
    Ok((canonical, names))
}

fn mac(key: &[u8], text: &str) -> Result<Vec<u8>, NotSignable> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| NotSignable)?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(region: &str, service: &'static str) -> Signer {
        Signer {
            access_key_id: Redacted::new("AKIDEXAMPLE".to_owned()),
            secret: Redacted::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            region: region.to_owned(),
            service,
        }
    }

    fn authorization(
        signer: &Signer,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let mut request = request.body(Full::new(bytes)).unwrap();
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        signer.sign(&mut request, body.as_bytes(), now).unwrap();
        request.headers()[AUTHORIZATION].to_str().unwrap().to_owned()
    }

    /// The cases `get-vanilla`, `get-vanilla-query-order-key-case`, `post-vanilla` and
    /// `post-x-www-form-urlencoded` of AWS's published Signature Version 4 test suite.
    #[test]
    fn the_published_test_vectors_are_signed_as_published() {
        let signer = signer("us-east-1", "service");
        let host = ("host", "example.amazonaws.com");
        let form = ("content-type", "application/x-www-form-urlencoded");
        for (method, uri, headers, body, signed, signature) in [
            (
                "GET",
                "/",
                &[host][..],
                "",
                "host;x-amz-date",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "GET",
                "/?Param2=value2&Param1=value1",
                &[host],
                "",
                "host;x-amz-date",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "POST",
                "/",
                &[host],
                "",
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "POST",
                "/",
                &[form, host],
                "Param1=value1",
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            assert_eq!(
                authorization(&signer, method, uri, headers, body),
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                     SignedHeaders={signed}, Signature={signature}"
                ),
                "{method} {uri}"
            );
        }
    }

    #[test]
    fn everything_that_is_sent_changes_the_signature() {
        let host = ("host", "email.eu-west-1.amazonaws.com");
        let json = ("content-type", "application/json");
        let ours = signer("eu-west-1", "ses");
        let sign = |signer: &Signer, uri, headers: &[(&str, &str)], body| {
            authorization(signer, "POST", uri, headers, body)
        };
        let all = [
            sign(&ours, "/v2", &[host, json], "{}"),
            sign(&ours, "/v1", &[host, json], "{}"),
            sign(&ours, "/v2?a=b", &[host, json], "{}"),
            sign(&ours, "/v2", &[host], "{}"),
            sign(&ours, "/v2", &[host, json], "{ }"),
            sign(&signer("eu-west-2", "ses"), "/v2", &[host, json], "{}"),
        ];
        for (index, first) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|second| first != second), "{all:#?}");
        }
        assert!(!format!("{ours:?}").contains("EXAMPLE"));
    }
}
