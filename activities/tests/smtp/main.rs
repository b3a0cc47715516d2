//! The SMTP adapter against servers that fail at every phase. The rule under test, whatever a server
//! does: a verdict of not sent means that it stored nothing, an acceptance that it stored exactly one
//! message.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test, both are how it fails")]

mod phases;
mod property;
mod real;
mod reuse;
mod tls;

use digest_activities::message::{FrozenMessage, Redacted};
use digest_activities::provider::smtp::{Credentials, Settings, Smtp};
use digest_activities::provider::{Provider, Ready, Reply};
use digest_tests::smtp::{Act, At, Script, SmtpServer, Traits};
use digest_workflows::operation::{Failure, FailureClass, OperationKey, Period};
use jiff::SignedDuration;

const RECIPIENT: &str = "bob@customer.example";

fn key() -> OperationKey {
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), "customer-1842").unwrap()
}

fn message_of(mime: Vec<u8>) -> FrozenMessage {
    FrozenMessage {
        recipient: Redacted::new(RECIPIENT.to_owned()),
        sender: "digest@shop.example".to_owned(),
        from: "Shop <digest@shop.example>".to_owned(),
        subject: Redacted::new("Your week".to_owned()),
        text: Redacted::new("Hello".to_owned()),
        html: None,
        headers: digest_activities::message::Redacted::new(Vec::new()),
        mime: Redacted::new(mime),
        content_hash: String::new(),
    }
}

/// A message whose text would end early if dots were not stuffed.
fn message() -> FrozenMessage {
    message_of(b"Subject: Your week\r\n\r\n.\r\n..\r\n.QUIT\r\nHello\r\n".to_vec())
}

/// A message that no buffer on the way can hold.
fn huge_message() -> FrozenMessage {
    message_of(
        b"All work and no play makes Jack a dull boy, as the saying goes.\r\n".repeat(500_000),
    )
}

fn settings(url: String) -> Settings {
    Settings {
        url,
        credentials: None,
        timeout: SignedDuration::from_secs(20),
        ehlo_name: None,
        ca_file: None,
    }
}

fn account(username: &str, password: &str) -> Credentials {
    Credentials {
        username: Redacted::new(username.to_owned()),
        password: Redacted::new(password.to_owned()),
    }
}

fn plain_to(server: &SmtpServer) -> Smtp {
    Smtp::new(settings(format!("smtp://127.0.0.1:{}", server.port()))).unwrap()
}

/// For a server that falls silent before the hand-over.
fn hasty_to(server: &SmtpServer) -> Smtp {
    let url = format!("smtp://127.0.0.1:{}", server.port());
    Smtp::new(Settings { timeout: SignedDuration::from_millis(300), ..settings(url) }).unwrap()
}

fn scripted(script: impl Into<Script>) -> SmtpServer {
    SmtpServer::start(Traits::default(), [script.into()]).unwrap()
}

async fn prepare(smtp: &Smtp, message: &FrozenMessage) -> Result<Box<dyn Ready>, Failure> {
    smtp.prepare(&key(), message).await
}

/// One whole delivery. A failure before the hand-over is, like any other, not sent.
async fn deliver(smtp: &Smtp, message: &FrozenMessage) -> Reply {
    match prepare(smtp, message).await {
        Ok(ready) => ready.hand_over().await,
        Err(failure) => Reply::NotSent(failure),
    }
}

#[track_caller]
fn assert_not_sent(reply: &Reply, class: FailureClass, code: &str) {
    let Reply::NotSent(failure) = reply else { panic!("{reply:?} instead of {class} ({code})") };
    assert_eq!((failure.class, failure.code.as_str()), (class, code));
}

#[track_caller]
fn assert_accepted(reply: &Reply) {
    assert!(matches!(reply, Reply::Accepted { .. }), "{reply:?}");
}

#[track_caller]
fn assert_unknown(reply: &Reply, text: &str) {
    assert_eq!(*reply, Reply::Unknown(text.to_owned()));
}
