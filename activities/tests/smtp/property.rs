//! Whatever a server does that keeps to the protocol's one promise, a no means that it stored nothing.

use super::*;
use digest_tests::smtp::{Authority, TlsMode};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

static AUTHORITY: LazyLock<Arc<Authority>> = LazyLock::new(|| Arc::new(Authority::new().unwrap()));

/// How long we listen after the dot.
const LISTEN: Duration = Duration::from_millis(150);

fn any_trouble() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Go),
        1 => Just(Act::Close),
        1 => Just(Act::Reset),
        1 => Just(Act::Hang),
        1 => Just(Act::Say("421 4.3.2 Bye")),
        1 => Just(Act::Say("450 4.2.0 Later")),
        1 => Just(Act::Say("550 5.7.1 No")),
        1 => Just(Act::Raw("what?\r\n")),
        1 => Just(Act::Raw("250 Ok\r\n250 Ok\r\n")),
        1 => Just(Act::RawThenClose("250-Ok")),
    ]
}

/// What comes after the dot. Nobody can tell a server that says no and stores from one that says no,
/// so such a server is not among them.
fn any_end() -> impl Strategy<Value = Act> {
    let silence = prop_oneof![
        Just(Act::Close),
        Just(Act::Reset),
        Just(Act::Hang),
        Just(Act::Say("421 4.3.2 Bye")),
        Just(Act::Raw("what?\r\n")),
        Just(Act::RawThenClose("250 2.0.0 O")),
        Just(Act::RawThenClose("250-2.0.0 Ok\r\n")),
    ];
    prop_oneof![
        3 => Just(Act::Go),
        2 => silence.clone().prop_map(Act::store_then),
        1 => silence,
        1 => Just(Act::store_then(Act::Raw("250 Ok\r\n421 Bye\r\n"))),
        1 => Just(Act::store_then(Act::RawThenClose("250 Ok\r\n"))),
        1 => Just(Act::store_then(Act::Raw("250-Ok\r\n550 No\r\n"))),
        1 => Just(Act::Say("452 4.3.1 Full")),
        1 => Just(Act::Say("554 5.7.1 No")),
    ]
}

/// What may happen while a message is read. An answer to a dot that is not there yet cannot be told
/// from the answer to the dot, so nobody gives one.
fn any_interruption() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => Just(Act::Go),
        1 => Just(Act::Close),
        1 => Just(Act::Reset),
        1 => Just(Act::Hang),
        1 => Just(Act::Say("421 4.3.2 Bye")),
        1 => Just(Act::Raw("what?\r\n")),
    ]
}

fn any_script() -> impl Strategy<Value = Script> {
    let points = [At::Greeting, At::Ehlo, At::Mail, At::Rcpt, At::Data];
    let troubles = (prop::sample::select(points.to_vec()), any_trouble());
    let interruptions = any_interruption().prop_map(|act| (At::Body, act));
    let ends = any_end().prop_map(|act| (At::Dot, act));
    (
        prop::collection::vec(troubles, 0..3),
        prop::collection::vec(interruptions, 0..3),
        prop::collection::vec(ends, 0..3),
    )
        .prop_map(|(troubles, interruptions, ends)| [troubles, interruptions, ends].concat())
}

/// Delivers `count` messages one after the other and compares all verdicts with what was stored.
async fn check(scripts: Vec<Script>, count: usize, tls: bool) {
    let traits =
        Traits { tls: tls.then(|| (TlsMode::Implicit, AUTHORITY.clone())), ..Traits::default() };
    let server = SmtpServer::start(traits, scripts).unwrap();
    let scheme = if tls { "smtps" } else { "smtp" };
    let smtp = Smtp::new(Settings {
        timeout: SignedDuration::from_millis(400),
        ca_file: tls.then(|| AUTHORITY.file().to_owned()),
        ..settings(format!("{scheme}://localhost:{}", server.port()))
    })
    .unwrap();
    for number in 0..count {
        let mime = format!("Subject: {number}\r\n\r\n.\r\n").into_bytes();
        let reply = match prepare(&smtp, &message_of(mime.clone())).await {
            Err(failure) => Reply::NotSent(failure),
            Ok(ready) => tokio::time::timeout(LISTEN, ready.hand_over())
                .await
                .unwrap_or(Reply::Unknown("nobody answered".to_owned())),
        };
        let record = server.record();
        let stored = record.stored.iter().filter(|stored| **stored == mime).count();
        match &reply {
            Reply::Accepted { .. } => assert_eq!(stored, 1, "{reply:?} {record:?}"),
            Reply::NotSent(_) => assert_eq!(stored, 0, "{reply:?} {record:?}"),
            Reply::Unknown(_) => assert!(stored <= 1, "{reply:?} {record:?}"),
        }
        assert!(
            !matches!(&reply, Reply::NotSent(failure) if failure.class == FailureClass::Ambiguous),
            "{reply:?}"
        );
    }
    // Nothing that was given up comes true later.
    let record = server.record();
    assert!(record.stored.len() <= count, "{record:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_no_means_nothing_stored_and_a_yes_exactly_one(
        scripts in prop::collection::vec(any_script(), 1..4),
        tls in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(scripts, 3, tls));
    }
}
