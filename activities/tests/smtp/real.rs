//! Servers that are not ours.

use super::*;
use digest_tests::mail_server::{AfterStoring, MailServer, SmtpSink};
use futures::stream::{self, StreamExt};
use std::time::Duration;

#[tokio::test]
async fn a_real_server_stores_each_message_once_byte_for_byte() {
    let Some(server) = MailServer::start() else { return };
    let smtp = Smtp::new(settings(server.url())).unwrap();
    let mimes: Vec<Vec<u8>> = (0..200)
        .map(|n| format!("Subject: {n}\r\nX-N: {n}\r\n\r\n.\r\n..\r\nHello {n}\r\n").into_bytes())
        .collect();
    let replies: Vec<Reply> = stream::iter(&mimes)
        .map(|mime| {
            let smtp = &smtp;
            async move { deliver(smtp, &message_of(mime.clone())).await }
        })
        .buffer_unordered(10)
        .collect()
        .await;
    replies.iter().for_each(assert_accepted);
    let mut stored = server.messages();
    let mut expected = mimes.clone();
    stored.sort();
    expected.sort();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn a_real_server_that_stores_and_breaks_off_is_unknown() {
    let Some(server) = MailServer::start_with(AfterStoring::Abort) else { return };
    let smtp = Smtp::new(settings(server.url())).unwrap();
    let reply = deliver(&smtp, &message()).await;
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    assert_eq!(server.messages(), [message().mime.reveal().clone()]);
}

#[tokio::test]
async fn a_real_server_that_stores_and_never_answers_keeps_us_waiting() {
    let Some(server) = MailServer::start_with(AfterStoring::Hang) else { return };
    let smtp = Smtp::new(settings(server.url())).unwrap();
    let mut answer = prepare(&smtp, &message()).await.ok().unwrap().hand_over();
    let stored = async {
        while server.messages().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        reply = &mut answer => panic!("{reply:?} though nobody answered"),
        waited = tokio::time::timeout(Duration::from_secs(20), stored) => waited.unwrap(),
    }
    assert!(futures::poll!(&mut answer).is_pending());
}

/// Options of smtp-sink, the verdict they must lead to, and how many messages it then holds.
type Row = (&'static [&'static str], fn(&Reply) -> bool, usize);

#[tokio::test]
async fn smtp_sink_fails_at_every_phase_and_we_say_what_it_stored() {
    let is_unknown = |reply: &Reply| matches!(reply, Reply::Unknown(_));
    let is_not_sent = |reply: &Reply| matches!(reply, Reply::NotSent(_));
    let is_accepted = |reply: &Reply| matches!(reply, Reply::Accepted { .. });
    let table: [Row; 12] = [
        (&[], is_accepted, 1),
        (&["-q", "CONNECT"], is_not_sent, 0),
        (&["-q", "EHLO"], is_not_sent, 0),
        (&["-q", "MAIL"], is_not_sent, 0),
        (&["-q", "RCPT"], is_not_sent, 0),
        (&["-q", "DATA"], is_not_sent, 0),
        (&["-Q", "RCPT"], is_not_sent, 0),
        (&["-f", "RCPT"], is_not_sent, 0),
        (&["-r", "DATA"], is_not_sent, 0),
        (&["-W", ".:1"], is_accepted, 1),
        // Stored, and then the connection is closed or 421 is said.
        (&["-q", "."], is_unknown, 1),
        (&["-Q", "."], is_unknown, 1),
    ];
    for (options, is_expected, stored) in table {
        let Some(sink) = SmtpSink::start(options) else { return };
        let smtp = Smtp::new(settings(sink.url())).unwrap();
        let reply = deliver(&smtp, &message()).await;
        assert!(is_expected(&reply), "{reply:?} with {options:?}");
        let whole = |dump: &Vec<u8>| String::from_utf8_lossy(dump).contains("Hello");
        let dumps = sink.messages();
        assert_eq!(dumps.iter().filter(|dump| whole(dump)).count(), stored, "{options:?}");
    }
}
