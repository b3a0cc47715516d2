//! Plain SMTP (RFC 5321), the weakest contract: no replay, no look-up, no events. So the one thing
//! that can be had is kept exactly: which failures are proven not sent.
//!
//! A delivery is prepared up to the reply 354, carries one recipient, and is handed over by one last
//! write of its own, `CRLF.CRLF`. Every failure before the start of that write is not sent; after it,
//! only a complete final reply says anything. There is no pipelining, since a single reply read too
//! few would shift every later verdict, and no connection is used again unless its last reply was
//! clean and alone. A connection that is dropped at any point is reset, never closed in an orderly
//! way.

mod endpoint;
mod idle;
mod letter;
mod replies;
mod session;
mod stop;
mod wire;

pub use endpoint::SettingsError;
pub use session::Credentials;

use crate::message::FrozenMessage;
use crate::provider::{Provider, Ready, Reply};
use data_encoding::HEXLOWER;
use digest_workflows::operation::{Contract, Failure, OperationKey, ProviderRef};
use endpoint::{Endpoint, Protection};
use futures::FutureExt;
use futures::future::BoxFuture;
use idle::Idle;
use jiff::SignedDuration;
use letter::Letter;
use session::{Session, Target};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stop::Stop;
use tokio::time::Instant;

/// The settings of an SMTP account.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `smtps://host:465` (implicit TLS), `smtp://host:587` (STARTTLS, required unless the peer is a
    /// loopback address and neither credentials nor `ca_file` are set) or `smtp+insecure://host:25`
    /// (no TLS, no credentials). Ports default to these.
    pub url: String,
    /// The account, if the server wants one. Sent only over verified TLS.
    pub credentials: Option<Credentials>,
    /// How long the preparation of a delivery may take in all, from the connection to the reply 354.
    /// Writing the message, without its final dot, may take half of it. The wait for the final reply
    /// is bounded by the caller alone.
    pub timeout: SignedDuration,
    /// What EHLO says: a host name or an address literal. By default the literal of the address that
    /// the connection comes from (RFC 5321, section 4.1.4).
    pub ehlo_name: Option<String>,
    /// A PEM file of certificate authorities that are trusted beside the platform's own.
    pub ca_file: Option<PathBuf>,
}

/// An account at an SMTP server.
pub struct Smtp {
    target: Target,
    timeout: Duration,
    idle: Arc<Idle>,
}

impl Smtp {
    /// Reads the settings; connects to nothing yet.
    ///
    /// # Errors
    /// The setting that cannot be used, and what to write instead.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let endpoint = Endpoint::parse(&settings.url)?;
        if endpoint.protection == Protection::None && settings.credentials.is_some() {
            return Err(SettingsError::InsecureCredentials);
        }
        if let Some(name) = settings.ehlo_name.as_deref().filter(|name| !is_ehlo_name(name)) {
            return Err(SettingsError::EhloName(name.to_owned()));
        }
        let timeout = Duration::try_from(settings.timeout)
            .ok()
            .filter(|timeout| !timeout.is_zero())
            .ok_or(SettingsError::Timeout)?;
        let target = Target {
            endpoint,
            tls: crate::provider::tls::connector(settings.ca_file.as_deref())?,
            tls_on_loopback: settings.credentials.is_some() || settings.ca_file.is_some(),
            credentials: settings.credentials,
            ehlo_name: settings.ehlo_name,
        };
        Ok(Self { target, timeout, idle: Arc::default() })
    }

    /// Goes up to 354, over a session that waits or over a new one.
    async fn begin(&self, letter: &Letter) -> Result<Session, Stop> {
        let deadline = Instant::now() + self.timeout;
        let mut session = self.announce(letter, deadline).await?;
        if let Err(stop) = session.rcpt(letter, deadline).await {
            self.recover(session, &stop, deadline).await;
            return Err(stop);
        }
        session.data(deadline).await?;
        Ok(session)
    }

    /// Opens a transaction. A session that waited may have grown old unnoticed, so where it fails at
    /// the first command, with nothing of this delivery taken, a new one is tried once.
    async fn announce(&self, letter: &Letter, deadline: Instant) -> Result<Session, Stop> {
        if let Some(mut session) = self.idle.take() {
            match session.mail(letter, deadline).await {
                Ok(()) => return Ok(session),
                Err(stop) if stop.is_final() => {
                    self.recover(session, &stop, deadline).await;
                    return Err(stop);
                }
                Err(_) => drop(session),
            }
        }
        let mut session = Session::open(&self.target, deadline).await?;
        match session.mail(letter, deadline).await {
            Ok(()) => Ok(session),
            Err(stop) => {
                self.recover(session, &stop, deadline).await;
                Err(stop)
            }
        }
    }

    /// Keeps a session for the next message whose transaction was refused and reset cleanly.
    async fn recover(&self, mut session: Session, stop: &Stop, deadline: Instant) {
        if stop.leaves_session_usable() && session.reset(deadline).await.is_ok() {
            self.idle.park(session);
        }
    }

    async fn greet_and_leave(&self) -> Result<String, Stop> {
        let session = Session::open(&self.target, Instant::now() + self.timeout).await?;
        let protection = session.tls_version().unwrap_or("no TLS");
        let account = if self.target.credentials.is_some() { "signed in" } else { "no account" };
        session.quit().await;
        Ok(format!("{} answers over {protection}, {account}", self.target.endpoint.name()))
    }
}

impl Provider for Smtp {
    fn provider_ref(&self) -> ProviderRef {
        let username = self.target.credentials.as_ref().map(|it| it.username.reveal().as_str());
        let account = format!("{}\n{}", self.target.endpoint.name(), username.unwrap_or_default());
        let fingerprint = HEXLOWER.encode(&Sha256::digest(account.as_bytes())[..8]);
        ProviderRef { kind: "smtp".to_owned(), account: fingerprint }
    }

    fn contract(&self) -> Contract {
        Contract::NONE
    }

    fn prepare<'a>(
        &'a self,
        _key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let letter = Letter::new(message)?;
            let session = self.begin(&letter).await.map_err(|stop| stop.failure())?;
            let ready = Delivery {
                session,
                body: letter.into_body(),
                body_timeout: self.timeout / 2,
                idle: self.idle.clone(),
            };
            Ok(Box::new(ready) as Box<dyn Ready>)
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async {
            let checked = self.greet_and_leave().await;
            checked.map_err(|stop| stop.explain(&self.target.endpoint.name()))
        }
        .boxed()
    }
}

/// A delivery after 354. Dropping it resets the connection.
struct Delivery {
    session: Session,
    body: Vec<u8>,
    /// Shorter than what the caller waits for an answer, so that a server that stopped reading is
    /// told as not sent while somebody still listens.
    body_timeout: Duration,
    idle: Arc<Idle>,
}

impl Ready for Delivery {
    fn hand_over(self: Box<Self>) -> BoxFuture<'static, Reply> {
        async move {
            let Self { mut session, body, body_timeout, idle } = *self;
            let deadline = Instant::now() + body_timeout;
            if let Err(stop) = session.write_body(&body, deadline).await {
                return Reply::NotSent(stop.failure());
            }
            let (reply, in_step) = session.finish().await;
            if in_step {
                idle.park(session);
            }
            reply
        }
        .boxed()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        // The reset says it all: QUIT or an orderly close after 354 might be read as a message.
        async move { drop(self) }.boxed()
    }
}

/// A host name, or an address literal in brackets.
fn is_ehlo_name(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let allowed = if inner.is_some() { ".:" } else { ".-_" };
    let inner = inner.unwrap_or(name);
    !inner.is_empty()
        && inner.len() <= 255
        && inner.chars().all(|c| c.is_ascii_alphanumeric() || allowed.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Redacted;

    fn settings(url: &str) -> Settings {
        Settings {
            url: url.to_owned(),
            credentials: None,
            timeout: SignedDuration::from_secs(30),
            ehlo_name: None,
            ca_file: None,
        }
    }

    fn credentials(username: &str, password: &str) -> Credentials {
        Credentials {
            username: Redacted::new(username.to_owned()),
            password: Redacted::new(password.to_owned()),
        }
    }

    fn refused(settings: Settings) -> SettingsError {
        Smtp::new(settings).err().unwrap()
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let account = Some(credentials("shop", "hunter2"));
        let insecure = Settings { credentials: account, ..settings("smtp+insecure://127.0.0.1") };
        assert!(!format!("{insecure:?}").contains("hunter2"));
        assert!(matches!(refused(insecure), SettingsError::InsecureCredentials));
        for name in ["", "two words", "a\r\nb", "[127.0.0.1", "[]", "mäil.example"] {
            let ehlo_name = Some(name.to_owned());
            let named = Settings { ehlo_name, ..settings("smtp://127.0.0.1") };
            assert!(matches!(refused(named), SettingsError::EhloName(_)), "{name}");
        }
        for name in ["mail.shop.example", "[192.0.2.1]", "[IPv6:2001:db8::1]"] {
            let ehlo_name = Some(name.to_owned());
            assert!(Smtp::new(Settings { ehlo_name, ..settings("smtp://127.0.0.1") }).is_ok());
        }
        let timeout = SignedDuration::ZERO;
        let hasty = Settings { timeout, ..settings("smtp://127.0.0.1") };
        assert!(matches!(refused(hasty), SettingsError::Timeout));
    }

    #[test]
    fn the_fingerprint_tells_accounts_apart_and_nothing_else() {
        let of = |url: &str, username: &str, password: &str| {
            let credentials = Some(credentials(username, password));
            let smtp = Smtp::new(Settings { credentials, ..settings(url) }).unwrap();
            smtp.provider_ref()
        };
        let account = of("smtps://mail.example.com", "shop@shop.example", "a");
        assert_eq!(account, of("smtps://mail.example.com:465", "shop@shop.example", "b"));
        assert_ne!(account, of("smtps://mail.example.com", "other@shop.example", "a"));
        assert_ne!(account, of("smtps://mail.example.org", "shop@shop.example", "a"));
        assert_eq!(account.account.len(), 16);
        assert!(!format!("{account:?}").contains("shop.example"));
    }
}
