//! Each row of the phases: what failed, what we say, and what the server holds.

use super::*;
use FailureClass::{
    Configuration, Overloaded, RateLimited, Recipient, Rejected, Schema, Transport,
};
use digest_tests::smtp::Ending;
use std::time::Duration;
use tokio::time::timeout;

/// Every phase before the message, with the names that codes give it.
const PHASES: [(At, &str); 5] = [
    (At::Greeting, "greeting"),
    (At::Ehlo, "ehlo"),
    (At::Mail, "mail"),
    (At::Rcpt, "rcpt"),
    (At::Data, "data"),
];

async fn assert_nothing_stored(server: &SmtpServer) {
    let record = server.until(|record| record.endings.len() == record.connections).await.unwrap();
    assert!(record.stored.is_empty(), "{record:?}");
    assert_eq!(record.ends_of_data, 0, "{record:?}");
}

#[tokio::test]
async fn an_ordinary_server_stores_exactly_the_message() {
    let server = scripted([]);
    let smtp = plain_to(&server);
    let reply = deliver(&smtp, &message()).await;
    assert_eq!(reply, Reply::Accepted { message_id: Some("4XyZ1234AB".to_owned()) });
    let record = server.record();
    assert_eq!(record.stored, [message().mime.reveal().clone()]);
    let said: Vec<&str> = record.commands.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(
        said,
        [
            "EHLO [127.0.0.1]",
            "MAIL FROM:<digest@shop.example>",
            "RCPT TO:<bob@customer.example>",
            "DATA"
        ]
    );
}

#[tokio::test]
async fn no_server_and_no_name_are_not_sent() {
    // A privileged port, which no test and no client is ever given.
    let nobody = Smtp::new(settings("smtp://127.0.0.1:1".to_owned())).unwrap();
    assert_not_sent(&deliver(&nobody, &message()).await, Transport, "smtp connect refused");
    let said = nobody.check().await.unwrap_err();
    assert!(said.contains("connect: refused; check host and port in provider.url"), "{said}");

    let nowhere = Smtp::new(settings("smtp://mail.invalid".to_owned())).unwrap();
    let reply = deliver(&nowhere, &message()).await;
    assert_not_sent(&reply, Transport, "smtp connect no address for the name");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_message_is_not_sent() {
    for (at, phase) in PHASES {
        for act in [Act::Close, Act::Reset, Act::RawThenClose("250 half"), Act::RawThenClose("2")] {
            let server = scripted([(at, act.clone())]);
            let reply = deliver(&plain_to(&server), &message()).await;
            let Reply::NotSent(failure) = &reply else { panic!("{reply:?} at {phase} {act:?}") };
            assert_eq!(failure.class, Transport, "{failure} {act:?}");
            assert!(failure.code.starts_with(&format!("smtp {phase} ")), "{failure} {act:?}");
            assert_nothing_stored(&server).await;
        }
    }
}

#[tokio::test]
async fn silence_before_the_message_ends_by_the_timeout_and_is_not_sent() {
    for (at, phase) in PHASES {
        let server = scripted([(at, Act::Hang)]);
        let reply = deliver(&hasty_to(&server), &message()).await;
        assert_not_sent(&reply, Transport, &format!("smtp {phase} timeout"));
        assert_nothing_stored(&server).await;
        assert_eq!(server.record().endings, [Ending::Reset], "at {phase}");
    }
}

#[tokio::test]
async fn a_refusal_before_the_message_is_not_sent() {
    for (at, phase) in PHASES {
        for (line, class, told) in [
            ("421 4.3.2 Shutting down", Overloaded, "421 4.3.2"),
            ("421 4.7.0 Too many connections", RateLimited, "421 4.7.0"),
            ("451 4.3.0 Not now", Overloaded, "451 4.3.0"),
            ("450-4.7.1 Not\r\n450 4.7.1 now", Overloaded, "450 4.7.1"),
            ("530 5.7.0 Authentication required", Configuration, "530 5.7.0"),
        ] {
            let server = scripted([(at, Act::Say(line))]);
            let smtp = plain_to(&server);
            let reply = deliver(&smtp, &message()).await;
            assert_not_sent(&reply, class, &format!("smtp {phase} {told}"));
            drop(smtp);
            assert_nothing_stored(&server).await;
        }
    }
    let server = scripted([(At::Rcpt, Act::Say("550 5.1.1 <bob@customer.example>: unknown"))]);
    let reply = deliver(&plain_to(&server), &message()).await;
    assert_not_sent(&reply, Recipient, "smtp rcpt 550 5.1.1");
}

#[tokio::test]
async fn nonsense_before_the_message_is_not_sent() {
    for (at, phase) in PHASES {
        for nonsense in ["HTTP/1.1 400 Bad Request\r\n", "250-one\r\n251 two\r\n", "\r\n", "25\r\n"]
        {
            let server = scripted([(at, Act::Raw(nonsense))]);
            let reply = deliver(&plain_to(&server), &message()).await;
            assert_not_sent(&reply, Transport, &format!("smtp {phase} unexpected answer"));
            assert_nothing_stored(&server).await;
        }
    }
    // The right thing at the wrong place: they no longer agree where they are.
    let server = scripted([(At::Data, Act::Raw("250 Ok\r\n"))]);
    assert_not_sent(&deliver(&plain_to(&server), &message()).await, Transport, "smtp data 250");
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn a_reply_too_many_before_the_dot_is_not_taken_for_the_next_one() {
    for (at, extra) in [
        (At::Greeting, "220 Hi\r\n250 Ok\r\n"),
        (At::Mail, "250 Ok\r\n250 Ok\r\n"),
        (At::Rcpt, "250 Ok\r\n354 Go on\r\n"),
        (At::Data, "354 Go on\r\n250 Ok: queued as 4XyZ1234AB\r\n"),
    ] {
        let server = scripted([(at, Act::Raw(extra))]);
        let reply = deliver(&plain_to(&server), &message()).await;
        let Reply::NotSent(failure) = &reply else { panic!("{reply:?} after {extra:?}") };
        assert_eq!(failure.class, Transport);
        assert!(failure.code.ends_with("unexpected answer"), "{failure}");
        assert_nothing_stored(&server).await;
    }
}

#[tokio::test]
async fn a_server_that_speaks_up_during_the_message_is_believed_and_sees_no_dot() {
    for (act, class, code) in [
        (Act::Say("552 5.3.4 Too big"), Schema, "smtp body 552 5.3.4"),
        (Act::Say("421 4.3.2 Shutting down"), Overloaded, "smtp body 421 4.3.2"),
        (Act::Say("250 2.0.0 Ok"), Transport, "smtp body unexpected answer"),
    ] {
        let server = scripted([(At::Body, act)]);
        let reply = deliver(&plain_to(&server), &huge_message()).await;
        assert_not_sent(&reply, class, code);
        assert_nothing_stored(&server).await;
        assert_eq!(server.record().endings, [Ending::Reset]);
    }
}

#[tokio::test]
async fn a_connection_that_ends_during_the_message_is_not_sent() {
    for act in [Act::Close, Act::Reset] {
        let server = scripted([(At::Body, act.clone())]);
        let reply = deliver(&plain_to(&server), &huge_message()).await;
        let Reply::NotSent(failure) = &reply else { panic!("{reply:?} after {act:?}") };
        assert_eq!(failure.class, Transport);
        assert!(failure.code.starts_with("smtp body "), "{failure}");
        assert_nothing_stored(&server).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_reading_the_message_is_given_up_and_not_sent() {
    let traits = Traits { receive_buffer: Some(4096), ..Traits::default() };
    let server = SmtpServer::start(traits, [vec![(At::Body, Act::Stall)]]).unwrap();
    let url = format!("smtp://127.0.0.1:{}", server.port());
    let timeout = SignedDuration::from_secs(2);
    let smtp = Smtp::new(Settings { timeout, ..settings(url) }).unwrap();
    let reply = deliver(&smtp, &huge_message()).await;
    assert_not_sent(&reply, Transport, "smtp body timeout");
    let record = server.record();
    assert_eq!((record.silences, record.ends_of_data, record.stored.len()), (1, 0, 0));
}

#[tokio::test]
async fn whatever_is_no_answer_after_the_dot_is_unknown_stored_or_not() {
    for (act, text) in [
        (Act::Close, "smtp connection closed after dot"),
        (Act::Say("421 4.3.2 Shutting down"), "smtp 421 after dot"),
        (Act::RawThenClose("250 2.0.0 Ok: queued"), "smtp connection closed after dot"),
        (Act::RawThenClose("250-2.0.0 Ok\r\n"), "smtp connection closed after dot"),
        (Act::RawThenClose("55"), "smtp connection closed after dot"),
        (Act::RawThenClose("250-2.0.0 Ok\r\n550 no\r\n"), "smtp unreadable reply after dot"),
        (Act::Raw("Ok\r\n"), "smtp unreadable reply after dot"),
        (Act::Raw("\r\n250 Ok\r\n"), "smtp unreadable reply after dot"),
        (Act::Raw("354 Go on\r\n"), "smtp 354 after dot"),
        (Act::Raw("250 Ok\r\n550 5.7.1 No\r\n"), "smtp more than one reply after dot"),
        (Act::Raw("451 Later\r\n250 Ok\r\n"), "smtp more than one reply after dot"),
    ] {
        for act in [Act::store_then(act.clone()), act] {
            let server = scripted([(At::Dot, act.clone())]);
            let reply = deliver(&plain_to(&server), &message()).await;
            assert_unknown(&reply, text);
            let is_stored = matches!(act, Act::Store(_));
            let record = server.until(|record| record.endings.len() == 1).await.unwrap();
            assert_eq!((record.stored.len(), record.ends_of_data), (usize::from(is_stored), 1));
        }
    }
    let server = scripted([(At::Dot, Act::store_then(Act::Reset))]);
    let reply = deliver(&plain_to(&server), &message()).await;
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    assert_eq!(server.record().stored.len(), 1);
}

#[tokio::test]
async fn a_final_reply_decides() {
    for (line, class, code) in [
        ("451 4.3.0 Not now", Overloaded, "smtp dot 451 4.3.0"),
        ("454 Throttling failure: Maximum sending rate exceeded.", RateLimited, "smtp dot 454"),
        ("454 Throttling failure: Daily message quota exceeded.", Configuration, "smtp dot 454"),
        ("550 5.1.1 No such user", Recipient, "smtp dot 550 5.1.1"),
        ("552 5.3.4 Too big", Schema, "smtp dot 552 5.3.4"),
        ("554 5.7.1 Content", Rejected, "smtp dot 554 5.7.1"),
        ("550 5.7.26 Unauthenticated", Configuration, "smtp dot 550 5.7.26"),
    ] {
        let server = scripted([(At::Dot, Act::Say(line))]);
        assert_not_sent(&deliver(&plain_to(&server), &message()).await, class, code);
        let record = server.record();
        assert_eq!((record.stored.len(), record.ends_of_data), (0, 1));
    }
    let server =
        scripted([(At::Dot, Act::store_then(Act::Raw("250-2.0.0 Ok\r\n250 2.0.0 id=a1b2c3\r\n")))]);
    let reply = deliver(&plain_to(&server), &message()).await;
    assert_eq!(reply, Reply::Accepted { message_id: Some("a1b2c3".to_owned()) });
    // Closing right after the answer takes nothing back.
    let server = scripted([(At::Dot, Act::store_then(Act::RawThenClose("250 2.0.0 Ok\r\n")))]);
    assert_accepted(&deliver(&plain_to(&server), &message()).await);
    assert_eq!(server.record().stored.len(), 1);
}

#[tokio::test]
async fn a_server_that_stores_and_never_answers_is_waited_for_and_then_reset() {
    let server = scripted([(At::Dot, Act::store_then(Act::Hang))]);
    let ready = prepare(&hasty_to(&server), &message()).await.ok().unwrap();
    let mut answer = ready.hand_over();
    // Longer than the account's own timeout, which says nothing about this wait.
    assert!(timeout(Duration::from_millis(900), &mut answer).await.is_err());
    assert_eq!(server.until(|record| record.silences == 1).await.unwrap().stored.len(), 1);
    assert!(server.record().endings.is_empty(), "the session was given up before the caller did");
    drop(answer);
    let record = server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!(record.endings, [Ending::Reset]);
    assert!(!record.commands.iter().any(|(_, line)| line == "QUIT"));
}

#[tokio::test]
async fn a_late_answer_is_heard_as_long_as_somebody_listens() {
    for (line, stored) in [("250 2.0.0 Ok", true), ("554 5.7.1 No", false)] {
        let late = Act::Late(line);
        let act = if stored { Act::store_then(late) } else { late };
        let server = scripted([(At::Dot, act)]);
        let ready = prepare(&hasty_to(&server), &message()).await.ok().unwrap();
        let mut answer = ready.hand_over();
        assert!(timeout(Duration::from_millis(600), &mut answer).await.is_err());
        server.until(|record| record.silences == 1).await.unwrap();
        server.release();
        match answer.await {
            Reply::Accepted { .. } => assert!(stored),
            Reply::NotSent(failure) => assert!(!stored && failure.class == Rejected, "{failure}"),
            Reply::Unknown(text) => panic!("{text} though an answer came"),
        }
    }
}

#[tokio::test]
async fn giving_up_after_354_resets_and_sends_nothing() {
    for by_dropping in [false, true] {
        let server = scripted([]);
        let ready = prepare(&plain_to(&server), &message()).await.ok().unwrap();
        if by_dropping {
            drop(ready);
        } else {
            ready.abandon().await;
        }
        let record = server.until(|record| !record.endings.is_empty()).await.unwrap();
        assert_eq!(record.endings, [Ending::Reset]);
        assert_eq!((record.ends_of_data, record.stored.len()), (0, 0));
        assert_eq!(record.commands.last().map(|(_, line)| line.as_str()), Some("DATA"));
    }
}

#[tokio::test]
async fn a_hand_over_that_nobody_polled_sends_nothing() {
    let server = scripted([]);
    let ready = prepare(&plain_to(&server), &message()).await.ok().unwrap();
    drop(ready.hand_over());
    let record = server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!((record.endings.as_slice(), record.ends_of_data), ([Ending::Reset].as_slice(), 0));
}
