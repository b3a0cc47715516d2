//! The sandbox: a provider over HTTP on loopback that sends nothing, keeps whichever contract it is
//! given, and fails where its script says. `digestd demo` and `kind = "sandbox"` use it, and an
//! evaluation reads its witness to know what was really accepted.

mod answer;
mod behaviour;
mod faults;
mod journal;
mod line;
mod server;
mod table;
mod wire;
mod witness;

pub use behaviour::{Behaviour, BehaviourError};
pub use faults::{CustomerFaults, FaultKind, FaultScript, ScriptError};
pub use journal::JournalError;
pub use server::{Sandbox, SandboxError};
pub use witness::{Acceptance, RequestRecord, Witness};

use crate::message::FrozenMessage;
use crate::provider::api::{self, read, told};
use crate::provider::exchange::{Answer, BODY_BYTES_MAX, Connection};
use crate::provider::{Found, Provider, Ready};
use data_encoding::HEXLOWER;
use digest_workflows::operation::{Contract, Failure, FailureClass, OperationKey, ProviderRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use table::{documented, reply};
use url::{Host, Url};
use wire::{Acceptances, Accepted, Health, KEY_HEADER, NewMessage, PAGE, Requests, code};

/// How long connecting may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a question that changes nothing may take: look-up, health, witness.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(10);

/// The adapter for one sandbox.
#[derive(Clone, Debug)]
pub struct SandboxProvider {
    address: SocketAddr,
    account: String,
    contract: Contract,
}

/// Why a URL is not a sandbox's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("provider.url {0:?} is not a url; a sandbox's looks like http://127.0.0.1:8025")]
    Malformed(String),
    /// It has another form, or leaves this machine.
    #[error(
        "provider.url {0:?} is not a sandbox's: it must be plain http on a loopback address, without user, path or query, like http://127.0.0.1:8025"
    )]
    NotASandbox(String),
}

impl SandboxProvider {
    /// The adapter for the sandbox at `url` (`http://` on a loopback address: what is sent to it is
    /// not encrypted), under the contract that the configuration has for it. `account` names what
    /// the sandbox remembers by where its port may change, otherwise the URL does.
    ///
    /// # Errors
    /// [`UrlError`] when `url` is not of that form.
    pub fn new(url: &str, account: Option<&str>, contract: Contract) -> Result<Self, UrlError> {
        let parsed = Url::parse(url).map_err(|_| UrlError::Malformed(url.to_owned()))?;
        let ip = match parsed.host() {
            Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
            Some(Host::Domain("localhost")) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            _ => None,
        };
        let plain = parsed.scheme() == "http"
            && parsed.path() == "/"
            && parsed.query().is_none()
            && parsed.fragment().is_none()
            && parsed.username().is_empty()
            && parsed.password().is_none();
        match (ip, parsed.port_or_known_default()) {
            (Some(ip), Some(port)) if plain && ip.is_loopback() => {
                let address = SocketAddr::new(ip, port);
                Ok(Self::at(address, account.unwrap_or(&format!("http://{address}")), contract))
            }
            _ => Err(UrlError::NotASandbox(url.to_owned())),
        }
    }

    fn at(address: SocketAddr, account: &str, contract: Contract) -> Self {
        let hash = Sha256::digest(format!("sandbox\n{account}"));
        Self { address, account: HEXLOWER.encode(&hash[..8]), contract }
    }

    /// Everything that the sandbox accepted and was asked so far; the same as [`Sandbox::witness`],
    /// from another process.
    ///
    /// # Errors
    /// Why it could not be read, in a sentence.
    pub async fn witness(&self) -> Result<Witness, String> {
        let mut witness = Witness::default();
        loop {
            let after = witness.acceptances.len();
            let page: Acceptances = self.records(&format!("/v1/acceptances?after={after}")).await?;
            let last = page.acceptances.len() < PAGE;
            witness.acceptances.extend(page.acceptances);
            if last {
                break;
            }
        }
        loop {
            let after = witness.requests.len();
            let page: Requests = self.records(&format!("/v1/requests?after={after}")).await?;
            let last = page.requests.len() < PAGE;
            witness.requests.extend(page.requests);
            if last {
                return Ok(witness);
            }
        }
    }

    async fn records<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let failed = |code: &str| {
            format!("the sandbox at {} was asked for {path} and answered {code}", self.address)
        };
        let answer = self.ask(path).await.map_err(|code| failed(&code))?;
        read(&answer).ok_or_else(|| failed(&format!("http {}", answer.status.as_u16())))
    }

    /// Asks for `path`; the error is a short code.
    async fn ask(&self, path: &str) -> Result<Answer, String> {
        let question = async {
            let request = self.request(Method::GET, path, None, Bytes::new())?;
            let connection = self.connect().await.map_err(|failure| failure.code)?;
            connection.exchange(request).await.map_err(|none| none.to_string())
        };
        let answer = tokio::time::timeout(QUESTION_TIME_MAX, question).await;
        answer.unwrap_or_else(|_| Err("http timeout".to_owned()))
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let host = self.address.ip().to_string();
        Connection::open(&host, self.address.port(), CONNECT_TIME_MAX).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<&OperationKey>,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header(KEY_HEADER, key.to_string());
        }
        request.body(Full::new(body)).map_err(|_| "http request malformed".to_owned())
    }
}

impl Provider for SandboxProvider {
    fn provider_ref(&self) -> ProviderRef {
        ProviderRef { kind: "sandbox".to_owned(), account: self.account.clone() }
    }

    fn contract(&self) -> Contract {
        self.contract
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let schema = |code: &str| Failure::new(FailureClass::Schema, code);
            let body = serde_json::to_vec(&NewMessage::from(message))
                .map_err(|_| schema("sandbox message malformed"))?;
            if body.len() > BODY_BYTES_MAX {
                return Err(schema("sandbox message too large"));
            }
            let request = self
                .request(Method::POST, "/v1/messages", Some(key), Bytes::from(body))
                .map_err(|code| schema(&code))?;
            let connection = self.connect().await?;
            Ok(api::ready(connection, request, reply))
        }
        .boxed()
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        _message: Option<&'a FrozenMessage>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        async move {
            let key = key.to_string();
            let query: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
            let answer = match self.ask(&format!("/v1/messages?key={query}")).await {
                Ok(answer) => answer,
                Err(code) => return Found::Unavailable(code),
            };
            if answer.status == StatusCode::OK
                && let Some(found) = read::<Accepted>(&answer)
                && found.key == key
            {
                return Found::Accepted { message_id: Some(found.id) };
            }
            // Another 404 may come from whatever else listens there.
            match (answer.status, documented(&answer).as_str()) {
                (StatusCode::NOT_FOUND, code::NOT_FOUND) => Found::Miss,
                (status, code) => Found::Unavailable(told(status, code)),
            }
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let answer = self.ask("/v1/health").await.map_err(|code| {
                let address = self.address;
                format!("the sandbox at {address} was asked for its health: {code}; start it, or correct provider.url")
            })?;
            let Some(Health { contract }) = read(&answer) else {
                return Err(format!(
                    "what listens at {} is not a sandbox (it answered http {}); correct provider.url",
                    self.address,
                    answer.status.as_u16()
                ));
            };
            if contract != self.contract {
                return Err(format!(
                    "the sandbox at {} keeps another contract than the configuration has for it; make sandbox.contract the same in both",
                    self.address
                ));
            }
            Ok(format!("sandbox at {}, no message leaves this machine", self.address))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_are_taken_and_the_account_is_told_apart() {
        let new = |url, account| SandboxProvider::new(url, account, Contract::NONE);
        let account = |url, account| new(url, account).unwrap().provider_ref().account;
        for url in [
            "https://127.0.0.1:1",
            "http://192.0.2.1",
            "http://shop.example",
            "http://127.0.0.1/a",
            "http://u:p@127.0.0.1",
        ] {
            assert!(matches!(new(url, None), Err(UrlError::NotASandbox(_))), "{url} was taken");
        }
        assert!(matches!(new("127.0.0.1", None), Err(UrlError::Malformed(_))));
        let one = account("http://127.0.0.1:8025", None);
        assert_eq!(one, account("http://localhost:8025/", None));
        assert_ne!(one, account("http://[::1]:8025", None));
        // A named account survives another port.
        let log = account("http://127.0.0.1:8025", Some("sandbox.jsonl"));
        assert_eq!(log, account("http://127.0.0.1:8026", Some("sandbox.jsonl")));
        assert_ne!(log, one);
    }
}
