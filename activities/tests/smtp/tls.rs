//! TLS, and what is never said without it.

use super::*;
use FailureClass::{Configuration, Transport};
use digest_tests::absent::absent;
use digest_tests::smtp::{Authority, Ending, Record, TlsMode};
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

const USER: &str = "digest@shop.example";
const PASSWORD: &str = "correct horse";

struct Rig {
    server: SmtpServer,
    ca_file: PathBuf,
    scheme: &'static str,
    /// Keeps the file.
    _authority: Arc<Authority>,
}

impl Rig {
    fn new(mode: TlsMode, script: impl Into<Script>) -> Self {
        Self::with(mode, script, Traits::default())
    }

    fn with(mode: TlsMode, script: impl Into<Script>, traits: Traits) -> Self {
        let authority = Arc::new(Authority::new().unwrap());
        let tls = Some((mode, authority.clone()));
        let account = traits.account.or(Some((USER, PASSWORD)));
        let traits = Traits { tls, account, ..traits };
        let server = SmtpServer::start(traits, [script.into()]).unwrap();
        let scheme = if mode == TlsMode::Implicit { "smtps" } else { "smtp" };
        Self { server, ca_file: authority.file().to_owned(), scheme, _authority: authority }
    }

    fn settings(&self) -> Settings {
        Settings {
            ca_file: Some(self.ca_file.clone()),
            credentials: Some(account(USER, PASSWORD)),
            ..settings(format!("{}://localhost:{}", self.scheme, self.server.port()))
        }
    }

    fn smtp(&self) -> Smtp {
        Smtp::new(self.settings()).unwrap()
    }
}

fn says(record: &Record, verb: &str) -> usize {
    record.commands.iter().filter(|(_, line)| line.starts_with(verb)).count()
}

#[tokio::test]
async fn both_modes_deliver_signed_in_and_again_on_the_same_connection() {
    for mode in [TlsMode::Implicit, TlsMode::StartTls] {
        for login_only in [false, true] {
            let traits = Traits { login_only, ..Traits::default() };
            let rig = Rig::with(mode, [], traits);
            let smtp = rig.smtp();
            for _ in 0..3 {
                assert_accepted(&deliver(&smtp, &message()).await);
            }
            let record = rig.server.record();
            let expected = message().mime.reveal().clone();
            assert_eq!(record.stored, [expected.clone(), expected.clone(), expected]);
            assert_eq!((record.connections, says(&record, "AUTH")), (1, 1), "{mode:?}");
            let ehlos = if mode == TlsMode::StartTls { 2 } else { 1 };
            assert_eq!(says(&record, "EHLO"), ehlos);
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_holds_the_run_and_hears_no_password() {
    for mode in [TlsMode::Implicit, TlsMode::StartTls] {
        let rig = Rig::new(mode, []);
        let stranger = Authority::new().unwrap();
        let untrusted = Settings { ca_file: Some(stranger.file().to_owned()), ..rig.settings() };
        let by_address = rig.settings().url.replace("localhost", "127.0.0.1");
        let misnamed = Settings { url: by_address, ..rig.settings() };
        let unlisted = Settings { ca_file: None, ..rig.settings() };
        for settings in [untrusted, misnamed, unlisted] {
            let reply = deliver(&Smtp::new(settings).unwrap(), &message()).await;
            assert_not_sent(&reply, Configuration, "smtp tls certificate not trusted");
        }
        let record = rig.server.record();
        assert_eq!((says(&record, "AUTH"), says(&record, "MAIL")), (0, 0));
    }
}

#[tokio::test]
async fn without_starttls_no_password_and_no_address_is_said() {
    let server = scripted([]);
    let url = format!("smtp://localhost:{}", server.port());
    let with_account =
        Settings { credentials: Some(account(USER, PASSWORD)), ..settings(url.clone()) };
    let authority = Authority::new().unwrap();
    let with_ca = Settings { ca_file: Some(authority.file().to_owned()), ..settings(url) };
    for settings in [with_account, with_ca] {
        let reply = deliver(&Smtp::new(settings).unwrap(), &message()).await;
        assert_not_sent(&reply, Configuration, "smtp starttls no TLS offered");
    }
    assert!(server.record().commands.iter().all(|(_, line)| line.starts_with("EHLO")));
}

#[tokio::test]
async fn a_peer_that_is_not_on_loopback_must_offer_starttls() {
    let Some(address) = outward_address() else {
        return absent(
            "a network address",
            "STARTTLS demanded of a distant peer",
            "connect a network",
        );
    };
    let traits = Traits { public: true, ..Traits::default() };
    let server = SmtpServer::start(traits, []).unwrap();
    let smtp = |scheme| {
        let smtp = Smtp::new(settings(format!("{scheme}://{address}:{}", server.port())));
        smtp.unwrap()
    };
    let reply = deliver(&smtp("smtp"), &message()).await;
    assert_not_sent(&reply, Configuration, "smtp starttls no TLS offered");
    assert!(server.record().commands.iter().all(|(_, line)| line.starts_with("EHLO")));
    assert_accepted(&deliver(&smtp("smtp+insecure"), &message()).await);
}

/// This machine's own address towards others. Nothing is sent to find it.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn failures_of_starttls_and_auth_are_not_sent() {
    for (at, act, class, code) in [
        (
            At::StartTls,
            Act::Say("454 4.7.0 Not now"),
            FailureClass::Overloaded,
            "smtp starttls 454 4.7.0",
        ),
        (At::StartTls, Act::Say("502 5.5.1 No"), Configuration, "smtp starttls 502 5.5.1"),
        (At::StartTls, Act::Close, Transport, "smtp starttls closed by the server"),
        (
            At::StartTls,
            Act::Raw("220 Go on\r\n250 AUTH PLAIN\r\n"),
            Transport,
            "smtp tls unexpected answer",
        ),
        (At::Auth, Act::Say("535 5.7.8 Not you"), Configuration, "smtp auth 535 5.7.8"),
        (
            At::Auth,
            Act::Say("432 4.7.12 Change your password"),
            Configuration,
            "smtp auth 432 4.7.12",
        ),
        (At::Auth, Act::Say("454 4.7.0 Not now"), FailureClass::Overloaded, "smtp auth 454 4.7.0"),
        (At::Auth, Act::Close, Transport, "smtp auth closed by the server"),
    ] {
        let rig = Rig::new(TlsMode::StartTls, [(at, act.clone())]);
        let reply = deliver(&rig.smtp(), &message()).await;
        assert_not_sent(&reply, class, code);
        let record = rig.server.record();
        assert_eq!((says(&record, "MAIL"), record.stored.len()), (0, 0), "{act:?}");
    }
}

#[tokio::test]
async fn silence_in_a_handshake_or_at_auth_ends_by_the_timeout() {
    for (mode, script, code) in [
        (TlsMode::StartTls, (At::StartTls, Act::Hang), "smtp starttls timeout"),
        (TlsMode::StartTls, (At::Auth, Act::Hang), "smtp auth timeout"),
        (TlsMode::Implicit, (At::Greeting, Act::Hang), "smtp greeting timeout"),
    ] {
        let rig = Rig::new(mode, [script]);
        let timeout = SignedDuration::from_millis(500);
        let smtp = Smtp::new(Settings { timeout, ..rig.settings() }).unwrap();
        assert_not_sent(&deliver(&smtp, &message()).await, Transport, code);
    }
    // A server that speaks first in the clear, taken for one with implicit TLS, waits as we do.
    let server = scripted([(At::Greeting, Act::Hang)]);
    let url = format!("smtps://localhost:{}", server.port());
    let timeout = SignedDuration::from_millis(500);
    let smtp = Smtp::new(Settings { timeout, ..settings(url) }).unwrap();
    assert_not_sent(&deliver(&smtp, &message()).await, Transport, "smtp tls timeout");
}

#[tokio::test]
async fn an_account_that_the_server_does_not_ask_for_holds_the_run() {
    let authority = Arc::new(Authority::new().unwrap());
    let tls = Some((TlsMode::Implicit, authority.clone()));
    let server = SmtpServer::start(Traits { tls, ..Traits::default() }, []).unwrap();
    let smtp = Smtp::new(Settings {
        ca_file: Some(authority.file().to_owned()),
        credentials: Some(account(USER, PASSWORD)),
        ..settings(format!("smtps://localhost:{}", server.port()))
    });
    let reply = deliver(&smtp.unwrap(), &message()).await;
    assert_not_sent(&reply, Configuration, "smtp auth no PLAIN or LOGIN offered");
}

#[tokio::test]
async fn the_phases_keep_their_meaning_under_tls() {
    for (act, stored) in [
        (Act::store_then(Act::Close), 1),
        (Act::store_then(Act::Reset), 1),
        (Act::store_then(Act::Say("421 4.3.2 Bye")), 1),
        (Act::store_then(Act::RawThenClose("250 half")), 1),
        (Act::Close, 0),
    ] {
        let rig = Rig::new(TlsMode::Implicit, [(At::Dot, act.clone())]);
        let reply = deliver(&rig.smtp(), &message()).await;
        assert!(matches!(reply, Reply::Unknown(_)), "{reply:?} after {act:?}");
        assert_eq!(rig.server.record().stored.len(), stored);
    }
    for act in [Act::Close, Act::Reset, Act::Say("552 5.3.4 Too big")] {
        let rig = Rig::new(TlsMode::StartTls, [(At::Body, act.clone())]);
        let reply = deliver(&rig.smtp(), &huge_message()).await;
        assert!(matches!(reply, Reply::NotSent(_)), "{reply:?} after {act:?}");
        let record = rig.server.until(|record| !record.endings.is_empty()).await.unwrap();
        assert_eq!((record.stored.len(), record.ends_of_data), (0, 0));
    }
}

#[tokio::test]
async fn giving_up_resets_under_tls_too() {
    let rig = Rig::new(TlsMode::Implicit, []);
    prepare(&rig.smtp(), &message()).await.ok().unwrap().abandon().await;
    let record = rig.server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!((record.endings.as_slice(), record.ends_of_data), ([Ending::Reset].as_slice(), 0));

    let rig = Rig::new(TlsMode::StartTls, [(At::Dot, Act::store_then(Act::Hang))]);
    let mut answer = prepare(&rig.smtp(), &message()).await.ok().unwrap().hand_over();
    tokio::select! {
        reply = &mut answer => panic!("{reply:?} though nobody answered"),
        record = rig.server.until(|record| record.silences == 1) => drop(record.unwrap()),
    }
    drop(answer);
    let record = rig.server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!((record.endings.as_slice(), record.stored.len()), ([Ending::Reset].as_slice(), 1));
}

#[tokio::test]
async fn check_signs_in_and_leaves_politely_or_says_what_to_do() {
    let rig = Rig::new(TlsMode::StartTls, []);
    let said = rig.smtp().check().await.unwrap();
    assert_eq!(said, format!("localhost:{} answers over TLS 1.3, signed in", rig.server.port()));
    let record = rig.server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!((record.endings.as_slice(), says(&record, "MAIL")), ([Ending::Quit].as_slice(), 0));

    let wrong = Settings { credentials: Some(account(USER, "wrong horse")), ..rig.settings() };
    let refused = Smtp::new(wrong).unwrap().check().await.unwrap_err();
    assert!(refused.contains("smtp auth 535 5.7.8"), "{refused}");
    assert!(refused.contains("DIGESTD_PROVIDER_PASSWORD"), "{refused}");
    let unlisted = Settings { ca_file: None, ..rig.settings() };
    let untrusted = Smtp::new(unlisted).unwrap().check().await.unwrap_err();
    assert!(untrusted.contains("provider.ca_file"), "{untrusted}");
    for text in [said, refused, untrusted] {
        assert!(!text.contains("horse") && !text.contains(USER), "{text}");
    }
}
