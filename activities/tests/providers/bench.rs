//! What the suite needs: an API, its adapter, a message.

use digest_activities::message::{FrozenMessage, Redacted};
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::{Provider, Reply};
use digest_tests::api_server::twilio::NUMBER;
use digest_tests::api_server::{Act, ApiServer, Dialect};
use digest_tests::authority::Authority;
use digest_workflows::operation::{Failure, OperationKey, Period};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Runs each of these tests, which take a dialect, for each adapter, in a module of its name.
macro_rules! held_to {
    ($tests:tt; $($adapter:ident: $dialect:expr,)*) => {$(
        mod $adapter {
            use std::sync::Arc;

            held_to! { @each $dialect; $tests }
        }
    )*};
    (@each $dialect:expr; [$($test:ident,)*]) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test(Arc::new($dialect)).await;
        }
    )*};
}

pub(crate) const SECRET: &str = "key_of-this.test-and_very-secret";
const DEADLINE: Duration = Duration::from_secs(20);

/// A provider's API and the adapter for it.
pub(crate) struct Bench {
    pub(crate) server: ApiServer,
    pub(crate) adapter: Arc<dyn Provider>,
    pub(crate) dialect: Arc<dyn Dialect>,
}

impl Bench {
    pub(crate) async fn new(dialect: Arc<dyn Dialect>, script: Vec<Act>) -> Self {
        let server = ApiServer::start(Arc::clone(&dialect), None, script).await.unwrap();
        let adapter = dialect.adapter(&settings(&server.url())).unwrap();
        Self { server, adapter, dialect }
    }

    /// The same over TLS.
    pub(crate) async fn secure(dialect: Arc<dyn Dialect>) -> (Self, ApiSettings) {
        let authority = Arc::new(Authority::new().unwrap());
        let tls = Some(Arc::clone(&authority));
        let server = ApiServer::start(Arc::clone(&dialect), tls, []).await.unwrap();
        let ca_file = Some(authority.file().to_owned());
        let settings = ApiSettings { ca_file, ..settings(&server.url()) };
        let adapter = dialect.adapter(&settings).unwrap();
        (Self { server, adapter, dialect }, settings)
    }

    /// One whole attempt.
    pub(crate) async fn deliver(&self, key: &OperationKey) -> Result<Reply, Failure> {
        let ready = soon(self.adapter.prepare(key, &self.message(key))).await?;
        Ok(soon(ready.hand_over()).await)
    }

    /// The message under `key`, of the kind that the provider takes.
    pub(crate) fn message(&self, key: &OperationKey) -> FrozenMessage {
        message_for(&*self.dialect, key)
    }

    /// How often the provider has taken `key`.
    pub(crate) fn taken(&self, key: &OperationKey) -> usize {
        let expected = self.dialect.expected(key);
        self.server.record().taken.iter().filter(|taken| taken.key == expected).count()
    }
}

pub(crate) fn settings(url: &str) -> ApiSettings {
    ApiSettings {
        url: Some(url.to_owned()),
        key: Some(Redacted::new(SECRET.to_owned())),
        username: Some(Redacted::new(SECRET.to_owned())),
        password: Some(Redacted::new(SECRET.to_owned())),
        ca_file: None,
        sender_domain: Some("shop.example".to_owned()),
        events: false,
    }
}

pub(crate) fn key(customer: &str) -> OperationKey {
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), customer).unwrap()
}

/// A message of the kind that the provider takes.
pub(crate) fn message_for(dialect: &dyn Dialect, key: &OperationKey) -> FrozenMessage {
    if dialect.sends_text_messages() { text_message(key, NUMBER) } else { message(key) }
}

/// A text message from `sender` with whatever a form's encoding might get wrong.
pub(crate) fn text_message(key: &OperationKey, sender: &str) -> FrozenMessage {
    let message = FrozenMessage {
        recipient: Redacted::new("+15005550009".to_owned()),
        sender: sender.to_owned(),
        from: sender.to_owned(),
        subject: Redacted::new(String::new()),
        text: Redacted::new(format!("Hello Ann,\n1 + 1 = 2 & 100% äöü 🎉 {}", key.customer_id())),
        html: None,
        headers: Redacted::new(Vec::new()),
        mime: Redacted::new(Vec::new()),
        content_hash: String::new(),
    };
    message.sealed()
}

/// A message with whatever a body's encoding might get wrong.
pub(crate) fn message(key: &OperationKey) -> FrozenMessage {
    let header = |name: &str, value: String| (name.to_owned(), value);
    FrozenMessage {
        recipient: Redacted::new("ann+news@shop.example".to_owned()),
        sender: "digest@shop.example".to_owned(),
        from: "Shop & Söhne <digest@shop.example>".to_owned(),
        subject: Redacted::new("Your \"week\" — 100% & more".to_owned()),
        text: Redacted::new("Hello Ann,\n* 1 + 1 = 2 & äöü 🎉\n".to_owned()),
        html: Some(Redacted::new("<p>Hello \"Ann\" &amp; all</p>\n".to_owned())),
        headers: Redacted::new(vec![
            header("Message-ID", key.message_id("shop.example")),
            header("Date", "Mon, 12 Oct 2026 07:00:00 +0000".to_owned()),
            header("X-Operation-Key", key.to_string()),
            header("List-Unsubscribe", "<https://shop.example/u/token?a=b&c=d>".to_owned()),
            header("List-Unsubscribe-Post", "List-Unsubscribe=One-Click".to_owned()),
        ]),
        mime: Redacted::new(b"Subject: Your week\r\n\r\nHello\r\n".to_vec()),
        content_hash: "0".repeat(64),
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("it takes too long"))
}
