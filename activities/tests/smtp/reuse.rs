//! Connections carry several messages, and never a doubt from one to the next.

use super::*;
use digest_tests::smtp::Ending;
use futures::future::join_all;

#[tokio::test]
async fn one_connection_carries_messages_until_it_has_done_enough() {
    let server = scripted([]);
    let smtp = plain_to(&server);
    for _ in 0..101 {
        assert_accepted(&deliver(&smtp, &message()).await);
    }
    let record = server.until(|record| record.endings.len() == 1).await.unwrap();
    assert_eq!((record.stored.len(), record.connections), (101, 2));
    assert_eq!(record.endings, [Ending::Quit]);
}

#[tokio::test]
async fn a_refusal_leaves_the_connection_usable() {
    let no = |at, line| (at, Act::Say(line));
    let server = scripted([
        no(At::Mail, "451 4.3.0 Not now"),
        no(At::Rcpt, "550 5.1.1 Unknown"),
        no(At::Dot, "554 5.7.1 No"),
        no(At::Dot, "451 4.7.1 Later"),
    ]);
    let smtp = plain_to(&server);
    for code in
        ["smtp mail 451 4.3.0", "smtp rcpt 550 5.1.1", "smtp dot 554 5.7.1", "smtp dot 451 4.7.1"]
    {
        let Reply::NotSent(failure) = deliver(&smtp, &message()).await else { panic!("{code}") };
        assert_eq!(failure.code, code);
    }
    assert_accepted(&deliver(&smtp, &message()).await);
    let record = server.record();
    assert_eq!((record.connections, record.stored.len()), (1, 1));
    let resets = record.commands.iter().filter(|(_, line)| line == "RSET").count();
    assert_eq!(resets, 2, "one for each transaction that did not come to DATA");
}

#[tokio::test]
async fn a_doubtful_or_chatty_connection_carries_nothing_more() {
    for act in [
        Act::store_then(Act::Say("421 4.3.2 Shutting down")),
        Act::store_then(Act::Raw("250 Ok\r\n421 4.3.2 Shutting down\r\n")),
        Act::store_then(Act::Raw("250 Ok\r\n250 Ok\r\n")),
        Act::store_then(Act::Raw("Ok\r\n")),
        Act::store_then(Act::RawThenClose("250 Ok\r\n")),
        Act::Say("421 4.3.2 Shutting down"),
    ] {
        let server = scripted([(At::Dot, act.clone())]);
        let smtp = plain_to(&server);
        let first = deliver(&smtp, &message()).await;
        let record = server.until(|record| !record.endings.is_empty()).await.unwrap();
        assert_ne!(record.endings, [Ending::Quit], "it waited for another message after {act:?}");
        assert!(!matches!(first, Reply::NotSent(_)), "{first:?} after {act:?}");
        assert_accepted(&deliver(&smtp, &message()).await);
        let record = server.record();
        assert_eq!(record.connections, 2, "{act:?}");
        let on_the_first = record.commands.iter().filter(|(number, _)| *number == 0);
        let mails = on_the_first.filter(|(_, line)| line.starts_with("MAIL")).count();
        assert_eq!(mails, 1, "{act:?}");
    }
}

#[tokio::test]
async fn a_connection_that_grew_old_is_replaced_without_a_failure() {
    for act in [
        Act::Close,
        Act::Reset,
        Act::Say("421 4.4.2 Idle for too long"),
        Act::Say("451 4.7.1 Too many messages on this connection"),
        Act::Raw("nonsense\r\n"),
    ] {
        let server = scripted([(At::Mail, Act::Go), (At::Mail, act.clone())]);
        let smtp = plain_to(&server);
        assert_accepted(&deliver(&smtp, &message()).await);
        assert_accepted(&deliver(&smtp, &message()).await);
        let record = server.record();
        assert_eq!((record.stored.len(), record.connections), (2, 2), "{act:?}");
    }
}

#[tokio::test]
async fn a_definite_refusal_on_an_old_connection_is_not_asked_again() {
    let server = scripted([(At::Mail, Act::Go), (At::Mail, Act::Say("550 5.7.1 Blocked"))]);
    let smtp = plain_to(&server);
    assert_accepted(&deliver(&smtp, &message()).await);
    let reply = deliver(&smtp, &message()).await;
    assert_not_sent(&reply, FailureClass::Configuration, "smtp mail 550 5.7.1");
    assert_eq!(server.record().connections, 1);
}

#[tokio::test]
async fn a_failing_server_is_tried_anew_only_once() {
    let closing = vec![(At::Mail, Act::Close)];
    let first = vec![(At::Mail, Act::Go), (At::Mail, Act::Close)];
    let server = SmtpServer::start(Traits::default(), [first, closing]).unwrap();
    let smtp = plain_to(&server);
    assert_accepted(&deliver(&smtp, &message()).await);
    let reply = deliver(&smtp, &message()).await;
    assert_not_sent(&reply, FailureClass::Transport, "smtp mail closed by the server");
    assert_eq!(server.record().connections, 2);
}

#[tokio::test]
async fn many_deliveries_run_at_once_each_on_a_connection_of_its_own() {
    let server = scripted([]);
    let smtp = plain_to(&server);
    let message = message();
    let prepared = join_all((0..50).map(|_| prepare(&smtp, &message))).await;
    assert_eq!(server.record().connections, 50);
    let replies = join_all(prepared.into_iter().map(|ready| ready.ok().unwrap().hand_over())).await;
    replies.iter().for_each(assert_accepted);
    assert_eq!(server.record().stored.len(), 50);
    // More than may wait are sent home at once, in the ordinary way.
    let record = server.until(|record| record.endings.len() >= 18).await.unwrap();
    assert!(record.endings.iter().all(|ending| *ending == Ending::Quit), "{:?}", record.endings);
    let replies = join_all((0..20).map(|_| deliver(&smtp, &message))).await;
    replies.iter().for_each(assert_accepted);
    assert_eq!(server.record().connections, 50, "the waiting ones were enough");
}

#[tokio::test]
async fn a_connection_that_waits_too_long_is_ended_in_the_ordinary_way() {
    let server = scripted([]);
    let smtp = plain_to(&server);
    assert_accepted(&deliver(&smtp, &message()).await);
    let record = server.until(|record| !record.endings.is_empty()).await.unwrap();
    assert_eq!(record.endings, [Ending::Quit]);
    assert_accepted(&deliver(&smtp, &message()).await);
}

#[tokio::test]
async fn an_account_that_is_gone_leaves_no_connection_behind() {
    let server = scripted([]);
    let smtp = plain_to(&server);
    assert_accepted(&deliver(&smtp, &message()).await);
    drop(smtp);
    server.until(|record| record.endings.len() == 1).await.unwrap();
}
