//! The suite.

use crate::bench::{Bench, SECRET, key, message_for, settings, soon};
use digest_activities::provider::{Found, Reply};
use digest_tests::api_server::{Act, Dialect, End, Phase, Response};
use digest_workflows::operation::{FailureClass, Replay};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

held_to! { [
    a_message_is_taken_once_with_everything_in_it,
    the_same_message_gives_the_same_bytes,
    the_same_key_again_does_what_the_contract_says,
    every_documented_refusal_has_its_class,
    only_what_is_documented_is_a_proof,
    a_wish_to_wait_is_told,
    a_failure_is_as_ambiguous_as_its_phase,
    an_answer_that_cannot_be_read_is_no_refusal,
    a_slow_answer_is_an_answer,
    a_silent_provider_is_waited_for_and_then_reset,
    what_is_given_up_before_the_hand_over_was_never_said,
    no_redirect_is_followed,
    a_provider_that_is_away_has_taken_nothing,
    tls_is_verified_before_anything_is_said,
    a_look_up_finds_our_key_and_no_other,
    a_check_names_what_is_wrong_with_the_account,
    nothing_private_is_ever_told,
];
    resend: digest_tests::api_server::Resend,
    postmark: digest_tests::api_server::Postmark,
    sendgrid: digest_tests::api_server::Sendgrid { has_look_up: false },
    sendgrid_with_activity: digest_tests::api_server::Sendgrid { has_look_up: true },
    mailgun: digest_tests::api_server::Mailgun,
    ses: digest_tests::api_server::Ses { bulk: false },
    ses_in_bulk: digest_tests::api_server::Ses { bulk: true },
    twilio: digest_tests::api_server::Twilio,
}

async fn a_message_is_taken_once_with_everything_in_it(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let key = key("customer-1842");
    assert_eq!(bench.adapter.provider_ref().kind, bench.dialect.kind());
    let reply = bench.deliver(&key).await.unwrap();
    let record = bench.server.record();
    assert_eq!(record.requests.len(), 1);
    let taken = &record.taken[0];
    assert_eq!(reply, Reply::Accepted { message_id: Some(taken.id.clone()) });
    assert_eq!(taken.key, bench.dialect.expected(&key));
    for part in bench.dialect.content(&taken.request) {
        let (name, sent, expected) = (part.name, part.sent, (part.expected)(&bench.message(&key)));
        assert_eq!(sent, expected, "{name}");
    }
}

async fn the_same_message_gives_the_same_bytes(dialect: Arc<dyn Dialect>) {
    let key = key("customer-1842");
    let mut sent = Vec::new();
    for _ in 0..3 {
        // Another process would build its maps anew.
        let bench = Bench::new(Arc::clone(&dialect), vec![]).await;
        bench.deliver(&key).await.unwrap();
        sent.push(bench.server.record().requests[0].body.clone());
    }
    assert!(sent.iter().all(|body| *body == sent[0]), "a replay would be refused");
}

async fn the_same_key_again_does_what_the_contract_says(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let key = key("customer-1842");
    let first = bench.deliver(&key).await.unwrap();
    let second = bench.deliver(&key).await.unwrap();
    match bench.adapter.contract().replay {
        Replay::ReturnsOriginal { .. } => assert_eq!(first, second),
        Replay::RejectsDuplicate { .. } => {
            assert_eq!(second, Reply::Accepted { message_id: None });
        }
        Replay::None => {
            assert_eq!(bench.taken(&key), 2, "the fake promises more than the contract");
            return;
        }
    }
    assert_eq!(bench.taken(&key), 1);
}

async fn every_documented_refusal_has_its_class(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    for (number, (response, class)) in bench.dialect.refusals().into_iter().enumerate() {
        let key = key(&format!("customer-{number}"));
        bench.server.script([Act::Say(response.clone())]);
        match bench.deliver(&key).await.unwrap() {
            Reply::NotSent(failure) => assert_eq!(failure.class, class, "{response:?}"),
            reply => panic!("{response:?} became {reply:?}"),
        }
        assert_eq!(bench.taken(&key), 0);
    }
}

async fn only_what_is_documented_is_a_proof(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let mut documented: Vec<Response> =
        bench.dialect.refusals().into_iter().map(|(response, _)| response).collect();
    for response in bench.dialect.ambiguous() {
        bench.server.script([Act::Say(response.clone())]);
        let reply = bench.deliver(&key("1")).await.unwrap();
        assert!(matches!(reply, Reply::Unknown(_)), "{response:?} became {reply:?}");
    }
    documented.extend(bench.dialect.ambiguous());
    // Every documented body under every other status, and statuses with nothing to read.
    let bodies: Vec<Vec<u8>> = documented.iter().map(|response| response.body.clone()).collect();
    for status in [201_u16, 300, 302, 400, 401, 403, 404, 405, 408, 409, 422, 500, 502, 503, 504] {
        for body in bodies.iter().chain([&Vec::new(), &b"<html>a proxy</html>".to_vec()]) {
            let response = Response::new(status, body.clone());
            let listed = documented.iter().any(|one| (one.status, &one.body) == (status, body));
            if listed || bench.dialect.is_documented(&response) {
                continue;
            }
            bench.server.script([Act::Say(response.clone())]);
            let reply = bench.deliver(&key("2")).await.unwrap();
            let accepted = matches!(reply, Reply::Accepted { .. }) && status < 300;
            assert!(
                accepted || matches!(reply, Reply::Unknown(_)),
                "{response:?}, which is not documented, became {reply:?}"
            );
        }
    }
}

async fn a_wish_to_wait_is_told(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let throttled = bench.dialect.refusals().into_iter();
    let mut throttled = throttled.filter(|(_, class)| *class == FailureClass::RateLimited);
    let (response, _) = throttled.next().unwrap();
    bench.server.script([Act::Say(response.with("retry-after", "7"))]);
    let Reply::NotSent(failure) = bench.deliver(&key("1")).await.unwrap() else {
        panic!("a 429 is not processed")
    };
    assert_eq!(failure.retry_after, Some(SignedDuration::from_secs(7)));
}

async fn a_failure_is_as_ambiguous_as_its_phase(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    for phase in Phase::ALL {
        for end in [End::Close, End::Reset] {
            let key = key(&format!("{phase:?}-{end:?}"));
            bench.server.script([Act::Fail(phase, end)]);
            let outcome = bench.deliver(&key).await;
            let proven = match &outcome {
                Err(failure) | Ok(Reply::NotSent(failure)) => {
                    failure.class == FailureClass::Transport
                }
                Ok(Reply::Unknown(_)) => false,
                Ok(Reply::Accepted { .. }) => panic!("{phase:?} {end:?}: nothing was answered"),
            };
            assert!(!proven || phase == Phase::Connected, "{phase:?} {end:?}: {outcome:?}");
            assert_eq!(bench.taken(&key), usize::from(phase == Phase::Taken));
        }
    }
}

async fn an_answer_that_cannot_be_read_is_no_refusal(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let ok = bench.dialect.accepted("x").status;
    let whole = |body: &[u8]| {
        let mut bytes =
            format!("HTTP/1.1 {ok} Ok\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        bytes
    };
    let html = whole(b"<html>hello</html>");
    let long = whole(&vec![b'x'; 11_000_000]);
    let truncated =
        format!("HTTP/1.1 {ok} Ok\r\ncontent-length: 100\r\n\r\n{{\"id\":").into_bytes();
    let endless = format!("HTTP/1.1 {ok} Ok\r\n\r\n").into_bytes();
    for (name, bytes) in [
        ("html", html),
        ("empty", whole(b"")),
        ("long", long),
        ("truncated", truncated),
        ("endless", endless),
    ] {
        let key = key(name);
        bench.server.script([Act::TakeThenSay(bytes, End::Close)]);
        let reply = bench.deliver(&key).await.unwrap();
        let expected = bench.dialect.unreadable_is_accepted();
        let accepted = reply == Reply::Accepted { message_id: None };
        assert!(
            accepted == expected || matches!(reply, Reply::Unknown(_)) != expected,
            "{name}: {reply:?}"
        );
        assert!(!matches!(reply, Reply::NotSent(_)), "{name}: {reply:?}");
        assert_eq!(bench.taken(&key), 1);
    }
    for (name, bytes) in [("garbage", &b"\x00\x01\x02\r\n\r\n"[..]), ("cut off", b"HTTP/1.1 2")] {
        let key = key(name);
        bench.server.script([Act::TakeThenSay(bytes.to_vec(), End::Close)]);
        let reply = bench.deliver(&key).await.unwrap();
        assert!(matches!(reply, Reply::Unknown(_)), "{name}: {reply:?}");
    }
}

async fn a_slow_answer_is_an_answer(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![Act::TakeThenDribble]).await;
    let reply = bench.deliver(&key("1")).await.unwrap();
    assert!(matches!(reply, Reply::Accepted { message_id: Some(_) }), "{reply:?}");
}

async fn a_silent_provider_is_waited_for_and_then_reset(dialect: Arc<dyn Dialect>) {
    for phase in [Phase::Head, Phase::HalfBody, Phase::Received, Phase::Taken] {
        let script = vec![Act::Fail(phase, End::Hang)];
        let bench = Bench::new(Arc::clone(&dialect), script).await;
        let key = key("1");
        let ready = soon(bench.adapter.prepare(&key, &bench.message(&key))).await.unwrap();
        let attempt = tokio::time::timeout(Duration::from_millis(300), ready.hand_over()).await;
        assert!(attempt.is_err(), "{phase:?}: somebody made an answer up");
        bench.server.until(|record| record.given_up == 1).await.unwrap();
    }
}

async fn what_is_given_up_before_the_hand_over_was_never_said(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let key = key("1");
    let ready = soon(bench.adapter.prepare(&key, &bench.message(&key))).await.unwrap();
    soon(ready.abandon()).await;
    let ready = soon(bench.adapter.prepare(&key, &bench.message(&key))).await.unwrap();
    drop(ready);
    let record = bench.server.until(|record| record.given_up == 2).await.unwrap();
    assert!(record.requests.is_empty() && record.taken.is_empty(), "{record:?}");
}

async fn no_redirect_is_followed(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    for status in [301, 302, 303, 307, 308] {
        let there = format!("{}/elsewhere", bench.server.url());
        bench.server.script([Act::Say(Response::new(status, "").with("location", &there))]);
        let before = bench.server.record().requests.len();
        let reply = bench.deliver(&key("1")).await.unwrap();
        assert!(matches!(reply, Reply::Unknown(_)), "{status}: {reply:?}");
        assert_eq!(bench.server.record().requests.len(), before + 1, "{status} was followed");
    }
}

async fn a_provider_that_is_away_has_taken_nothing(dialect: Arc<dyn Dialect>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for url in [closed.as_str(), "https://no-such-host.invalid"] {
        let adapter = dialect.adapter(&settings(url)).unwrap();
        let key = key("1");
        let failure =
            soon(adapter.prepare(&key, &message_for(&*dialect, &key))).await.err().unwrap();
        assert_eq!(failure.class, FailureClass::Transport, "{failure:?}");
        assert!(soon(adapter.check()).await.is_err());
        let message = message_for(&*dialect, &key);
        let found = soon(adapter.look_up(&key, Some(&message), Timestamp::now())).await;
        assert!(!matches!(found, Found::Miss));
    }
}

async fn tls_is_verified_before_anything_is_said(dialect: Arc<dyn Dialect>) {
    let (bench, settings) = Bench::secure(Arc::clone(&dialect)).await;
    let key = key("1");
    let reply = bench.deliver(&key).await.unwrap();
    assert!(matches!(reply, Reply::Accepted { message_id: Some(_) }), "{reply:?}");
    soon(bench.adapter.check()).await.unwrap();
    let said = bench.server.record().requests.len();
    // An authority that nobody vouches for, and a name that the certificate is not for.
    let stranger =
        digest_activities::provider::api::ApiSettings { ca_file: None, ..settings.clone() };
    let url = bench.server.url().replace("localhost", "127.0.0.1");
    let other_name = digest_activities::provider::api::ApiSettings { url: Some(url), ..settings };
    for settings in [stranger, other_name] {
        let adapter = dialect.adapter(&settings).unwrap();
        let failure =
            soon(adapter.prepare(&key, &message_for(&*dialect, &key))).await.err().unwrap();
        assert_eq!(failure.class, FailureClass::Configuration, "{failure:?}");
    }
    assert_eq!(bench.server.record().requests.len(), said);
}

async fn a_look_up_finds_our_key_and_no_other(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let (ours, other) = (key("customer-1"), key("customer-2"));
    let since = Timestamp::now() - SignedDuration::from_mins(1);
    bench.deliver(&ours).await.unwrap();
    let ask = async |key| {
        let message = bench.message(key);
        soon(bench.adapter.look_up(key, Some(&message), since)).await
    };
    if !bench.adapter.contract().lookup.is_offered() {
        assert!(matches!(ask(&ours).await, Found::Unavailable(_)));
        return;
    }
    let id = bench.server.record().taken[0].id.clone();
    assert_eq!(ask(&ours).await, Found::Accepted { message_id: Some(id) });
    assert_eq!(ask(&other).await, Found::Miss);
    // What says nothing is never a miss.
    for response in [
        Response::new(401, "{}"),
        Response::new(429, "{}"),
        Response::new(500, "{}"),
        Response::new(503, ""),
        Response::new(200, "<html>hello</html>"),
        Response::new(200, ""),
        Response::new(302, ""),
    ] {
        bench.server.script([Act::Say(response.clone())]);
        let found = ask(&other).await;
        assert!(matches!(found, Found::Unavailable(_)), "{response:?} became {found:?}");
    }
    for phase in [Phase::Connected, Phase::Received] {
        bench.server.script([Act::Fail(phase, End::Reset)]);
        assert!(matches!(ask(&other).await, Found::Unavailable(_)));
    }
}

async fn a_check_names_what_is_wrong_with_the_account(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    soon(bench.adapter.check()).await.unwrap();
    for (response, word) in bench.dialect.bad_accounts() {
        bench.server.script([Act::Say(response.clone())]);
        let said = soon(bench.adapter.check()).await.unwrap_err();
        assert!(said.contains(word), "{response:?}: {said}");
    }
    assert!(bench.server.record().taken.is_empty(), "a check sent something");
}

async fn nothing_private_is_ever_told(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let mut told = Vec::new();
    let refusals = bench.dialect.refusals().into_iter().map(|(response, _)| response);
    for response in refusals.chain(bench.dialect.ambiguous()) {
        bench.server.script([Act::Say(response)]);
        told.push(format!("{:?}", bench.deliver(&key("1")).await));
    }
    for (response, _) in bench.dialect.bad_accounts() {
        bench.server.script([Act::Say(response)]);
        told.push(format!("{:?}", soon(bench.adapter.check()).await));
    }
    told.push(format!("{:?}", bench.adapter.provider_ref()));
    for text in told {
        assert!(!text.contains("ann"), "an address is told: {text}");
        assert!(!text.contains(SECRET), "the key is told: {text}");
    }
}
