//! What adapters over HTTP have in common: a base URL, credentials that are never shown, one
//! connection an attempt, and an answer that the adapter's own table reads.

use super::exchange::{Answer, BODY_BYTES_MAX, Connection, NoAnswer};
use super::tls::{TlsError, connector};
use super::{Ready, Reply};
use crate::message::Redacted;
use data_encoding::HEXLOWER;
use digest_workflows::operation::{Failure, FailureClass, ProviderRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Method, Request, StatusCode};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_rustls::TlsConnector;
use url::{Host, Url, form_urlencoded};

/// How long connecting may take, and the TLS handshake after it.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a question that changes nothing may take.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(20);

/// A code from a provider's answer is shown up to this many characters.
const CODE_CHARS_MAX: usize = 60;

/// The environment variable of a provider's API key.
pub const KEY_VARIABLE: &str = "DIGESTD_PROVIDER_API_KEY";

/// The environment variable of a provider's user name.
pub const USERNAME_VARIABLE: &str = "DIGESTD_PROVIDER_USERNAME";

/// The environment variable of a provider's password.
pub const PASSWORD_VARIABLE: &str = "DIGESTD_PROVIDER_PASSWORD";

/// What an answer to an attempt, which came at the given time, says about it: an adapter's table.
pub type Table = fn(&Answer, Timestamp) -> Reply;

/// Why an adapter's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiSettingsError {
    /// The base of the API is not a URL that can be used.
    #[error(
        "provider.url is not the base of an API: {0}; write for example https://api.example.com, or leave it out"
    )]
    Url(String),
    /// The credential is not set.
    #[error("provider.kind = {kind:?} needs {variable}, which is not set; put the {what} there")]
    NoCredential {
        /// The adapter.
        kind: &'static str,
        /// The environment variable.
        variable: &'static str,
        /// What belongs there.
        what: &'static str,
    },
    /// The credential cannot go into a header.
    #[error("{0} holds characters that no key has, perhaps a line end; set it again")]
    BadCredential(&'static str),
    /// A setting has a form that the provider does not take.
    #[error("provider.{setting} {why}")]
    Setting {
        /// Its name in `[provider]`.
        setting: &'static str,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The settings of an account behind an HTTP API.
#[derive(Clone, Debug, Default)]
pub struct ApiSettings {
    /// The base of the API, where it is not the provider's usual one.
    pub url: Option<String>,
    /// The credential, of [`KEY_VARIABLE`].
    pub key: Option<Redacted<String>>,
    /// The user name, of [`USERNAME_VARIABLE`], where an adapter takes a pair.
    pub username: Option<Redacted<String>>,
    /// The password, of [`PASSWORD_VARIABLE`], where an adapter takes a pair.
    pub password: Option<Redacted<String>>,
    /// A PEM file of certificate authorities that are trusted beside the platform's own.
    pub ca_file: Option<PathBuf>,
    /// The domain of the campaign's `from`, which [`check`](super::Provider::check) asks about.
    pub sender_domain: Option<String>,
    /// Whether the provider's webhooks reach digestd.
    pub events: bool,
}

impl ApiSettings {
    /// The API at its configured base, or at `usual`.
    ///
    /// # Errors
    /// Those of [`Api::new`].
    pub fn api(&self, usual: &str) -> Result<Api, ApiSettingsError> {
        Api::new(self.url.as_deref().unwrap_or(usual), self.ca_file.as_deref())
    }

    /// The credential of the adapter `kind`, which `what` describes.
    ///
    /// # Errors
    /// [`ApiSettingsError::NoCredential`].
    pub fn key(
        &self,
        kind: &'static str,
        what: &'static str,
    ) -> Result<&Redacted<String>, ApiSettingsError> {
        let variable = KEY_VARIABLE;
        self.key.as_ref().ok_or(ApiSettingsError::NoCredential { kind, variable, what })
    }
}

/// An HTTP API with the headers that every request to it carries.
pub struct Api {
    tls: Option<TlsConnector>,
    host: String,
    port: u16,
    prefix: String,
    headers: HeaderMap,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("base", &self.base()).finish_non_exhaustive()
    }
}

impl Api {
    /// The API at `url`: `https://` anywhere, `http://` on a loopback address only. `ca_file` names
    /// certificate authorities that are trusted beside the platform's own. Connects to nothing yet.
    ///
    /// # Errors
    /// [`ApiSettingsError::Url`] and [`ApiSettingsError::Tls`].
    pub fn new(url: &str, ca_file: Option<&Path>) -> Result<Self, ApiSettingsError> {
        let refuse = |why: &str| ApiSettingsError::Url(why.to_owned());
        let url = Url::parse(url).map_err(|error| ApiSettingsError::Url(error.to_string()))?;
        let (host, is_loopback) = match url.host() {
            Some(Host::Domain(name)) => (name.to_owned(), name == "localhost"),
            Some(Host::Ipv4(address)) => (address.to_string(), address.is_loopback()),
            Some(Host::Ipv6(address)) => (address.to_string(), address.is_loopback()),
            None => return Err(refuse("it names no host")),
        };
        let tls = match url.scheme() {
            "https" => Some(connector(ca_file)?),
            "http" if is_loopback => None,
            "http" => return Err(refuse("http:// would send the key in clear text")),
            _ => return Err(refuse("it does not begin with https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("it holds credentials, which belong into the environment"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it goes on after its path"));
        }
        let port = url.port_or_known_default().unwrap_or(443);
        let mut headers = HeaderMap::new();
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let host_header = HeaderValue::from_str(authority);
        headers.insert(HOST, host_header.map_err(|_| refuse("its host cannot be written"))?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let agent = concat!("digestd/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host, port, prefix, headers })
    }

    /// Adds a header to every request, whose value holds the credential.
    ///
    /// # Errors
    /// [`ApiSettingsError::BadCredential`].
    pub fn with_secret(
        mut self,
        name: HeaderName,
        value: &Redacted<String>,
    ) -> Result<Self, ApiSettingsError> {
        let value = HeaderValue::from_str(value.reveal());
        let mut value = value.map_err(|_| ApiSettingsError::BadCredential(KEY_VARIABLE))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Host, port and path of the base, for people.
    #[must_use]
    pub fn base(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.prefix)
    }

    /// A request that sends `body`, of `content_type`, to `path`, which begins with a slash and may
    /// have a query.
    ///
    /// # Errors
    /// Class `schema`: a header or the path cannot be written, or the body is above
    /// [`BODY_BYTES_MAX`].
    pub fn post(
        &self,
        path: &str,
        further: &[(HeaderName, String)],
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let schema = |code| Failure::new(FailureClass::Schema, code);
        if body.len() > BODY_BYTES_MAX {
            return Err(schema("http request too large"));
        }
        let mut request = self.request(Method::POST, path).header(CONTENT_TYPE, content_type);
        for (name, value) in further {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::from(body))).map_err(|_| schema("http request malformed"))
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.prefix));
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
        }
        request
    }

    /// Opens a connection for one attempt; `table` reads its answer.
    ///
    /// # Errors
    /// As [`Connection::open`] and [`Connection::secure`]; nothing was sent.
    pub async fn ready(
        &self,
        request: Request<Full<Bytes>>,
        table: Table,
    ) -> Result<Box<dyn Ready>, Failure> {
        Ok(ready(self.connect().await?, request, table))
    }

    /// Asks for `path`, which changes nothing at the provider.
    ///
    /// # Errors
    /// A short code, when no answer came.
    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        self.ask(self.question(path)?).await
    }

    /// The request that [`get`](Self::get) asks, for adapters that add to it.
    ///
    /// # Errors
    /// A short code, when the path cannot be written.
    pub fn question(&self, path: &str) -> Result<Request<Full<Bytes>>, String> {
        let request = self.request(Method::GET, path).body(Full::default());
        request.map_err(|_| "http request malformed".to_owned())
    }

    /// Asks what `request` asks, which changes nothing at the provider.
    ///
    /// # Errors
    /// A short code, when no answer came.
    pub async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let question = async {
            let connection = self.connect().await.map_err(|failure| failure.code)?;
            connection.exchange(request).await.map_err(|none| none.to_string())
        };
        let answer = tokio::time::timeout(QUESTION_TIME_MAX, question).await;
        answer.unwrap_or_else(|_| Err("http timeout".to_owned()))
    }

    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        let connection = Connection::open(&self.host, self.port, CONNECT_TIME_MAX).await?;
        match &self.tls {
            Some(tls) => connection.secure(tls, &self.host, CONNECT_TIME_MAX).await,
            None => Ok(connection),
        }
    }
}

/// Which account `kind` at `api` stands for. `credential` tells accounts apart; of it only a hash
/// of everything together is kept. `format` changes whenever an adapter builds other bytes from the
/// same message: a provider would take those for another request.
#[must_use]
pub fn account(kind: &str, api: &Api, credential: &Redacted<String>, format: u32) -> ProviderRef {
    let text = format!("{kind}\n{}\n{}\n{format}", api.base(), credential.reveal());
    let hash = Sha256::digest(text);
    ProviderRef { kind: kind.to_owned(), account: HEXLOWER.encode(&hash[..8]) }
}

/// `path` with a query of `fields`, encoded as a form is.
#[must_use]
pub fn query(path: &str, fields: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields);
    format!("{path}?{}", query.finish())
}

/// A request whose connection is open.
struct Prepared {
    connection: Connection,
    request: Request<Full<Bytes>>,
    table: Table,
}

/// A delivery that is ready on an open connection.
pub(super) fn ready(
    connection: Connection,
    request: Request<Full<Bytes>>,
    table: Table,
) -> Box<dyn Ready> {
    Box::new(Prepared { connection, request, table })
}

impl Ready for Prepared {
    fn hand_over(self: Box<Self>) -> BoxFuture<'static, Reply> {
        let Self { connection, request, table } = *self;
        async move {
            match connection.exchange(request).await {
                Ok(answer) => table(&answer, Timestamp::now()),
                Err(none) => unanswered(none),
            }
        }
        .boxed()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Nothing was written: the reset leaves nothing that could be taken for a message.
        drop(self.connection);
        futures::future::ready(()).boxed()
    }
}

/// What the lack of an answer says about an attempt.
pub(super) fn unanswered(none: NoAnswer) -> Reply {
    match none {
        NoAnswer::NotWritten(code) => Reply::NotSent(Failure::new(FailureClass::Transport, code)),
        NoAnswer::Lost(code) => Reply::Unknown(code.to_owned()),
    }
}

/// The answer's body as `T`, if it is one.
#[must_use]
pub fn read<T: DeserializeOwned>(answer: &Answer) -> Option<T> {
    serde_json::from_slice(answer.body.as_ref()?).ok()
}

/// How a status and the provider's own code are told: `http 422 recipient_refused`. A code that is
/// not made of letters, digits, `_`, `-`, `.` and `#` is not shown: it may be anything.
#[must_use]
pub fn told(status: StatusCode, code: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.#".contains(&byte);
    let code = if code.len() <= CODE_CHARS_MAX && code.bytes().all(plain) { code } else { "" };
    format!("http {} {code}", status.as_u16()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Api::new(url, None).unwrap_err().to_string()
    }

    #[test]
    fn a_base_is_a_host_that_keeps_the_key_secret() {
        for (url, why) in [
            ("api.shop.example", "relative URL"),
            ("ftp://api.shop.example", "https://"),
            ("http://api.shop.example", "clear text"),
            ("https://user:word@api.shop.example", "credentials"),
            ("https://api.shop.example/?a=b", "after its path"),
            ("https://", "empty host"),
        ] {
            assert!(refused(url).contains(why), "{url}: {}", refused(url));
            assert!(!refused(url).contains("word"), "a password is shown");
        }
        for (url, base) in [
            ("https://api.shop.example", "https://api.shop.example:443"),
            ("https://api.shop.example/v3/", "https://api.shop.example:443/v3"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost", "http://localhost:80"),
        ] {
            assert_eq!(Api::new(url, None).unwrap().base(), base);
        }
    }

    #[test]
    fn a_key_is_sent_and_never_shown() {
        let key = Redacted::new("re_verysecret".to_owned());
        let api = Api::new("https://api.shop.example/v1", None).unwrap();
        let api = api.with_secret(hyper::header::AUTHORIZATION, &key).unwrap();
        let name = HeaderName::from_static("idempotency-key");
        let further = [(name, "digest:2026-W42:1".to_owned())];
        let request = api.post("/emails", &further, "application/json", b"{}".to_vec());
        let request = request.unwrap();
        assert_eq!(request.uri(), "/v1/emails");
        assert_eq!(request.headers()[HOST], "api.shop.example");
        assert_eq!(request.headers()["idempotency-key"], "digest:2026-W42:1");
        assert!(!format!("{api:?}{:?}", request.headers()).contains("verysecret"));
        assert_eq!(request.headers()["authorization"], "re_verysecret");
        let broken = Redacted::new("re_\nx".to_owned());
        let error = api.with_secret(hyper::header::AUTHORIZATION, &broken).unwrap_err();
        assert!(error.to_string().contains(KEY_VARIABLE), "{error}");
    }

    #[test]
    fn accounts_differ_by_kind_base_credential_and_format() {
        let api = |url| Api::new(url, None).unwrap();
        let key = |text: &str| Redacted::new(text.to_owned());
        let (one, other) = (api("https://a.example"), api("https://b.example"));
        let all = [
            account("resend", &one, &key("x"), 1),
            account("postmark", &one, &key("x"), 1),
            account("resend", &other, &key("x"), 1),
            account("resend", &one, &key("y"), 1),
            account("resend", &one, &key("x"), 2),
        ];
        for (index, first) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|second| first != second), "{all:?}");
        }
    }

    #[test]
    fn only_a_plain_code_is_told() {
        let told = |code| told(StatusCode::UNPROCESSABLE_ENTITY, code);
        assert_eq!(told("recipient_refused"), "http 422 recipient_refused");
        assert_eq!(told("406"), "http 422 406");
        assert_eq!(told("ann@shop.example is unknown"), "http 422");
    }
}
