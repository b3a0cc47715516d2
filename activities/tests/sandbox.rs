//! The sandbox provider over real sockets: what its adapter says about an attempt is compared with
//! what the sandbox really accepted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as tests do")]

use digest_activities::message::{FrozenMessage, Redacted};
use digest_activities::provider::exchange::Connection;
use digest_activities::provider::sandbox::{
    Behaviour, CustomerFaults, FaultKind, Sandbox, SandboxError, SandboxProvider, Witness,
};
use digest_activities::provider::{Found, Provider, Ready, Reply};
use digest_workflows::operation::{Contract, FailureClass, Lookup, OperationKey, Period, Replay};
use http_body_util::Full;
use hyper::Request;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DEADLINE: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn key(customer: &str) -> OperationKey {
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), customer).unwrap()
}

fn message(text: &str) -> FrozenMessage {
    FrozenMessage {
        recipient: Redacted::new("ann@shop.example".to_owned()),
        sender: "digest@shop.example".to_owned(),
        from: "Shop <digest@shop.example>".to_owned(),
        subject: Redacted::new("Your week".to_owned()),
        text: Redacted::new(text.to_owned()),
        html: None,
        headers: digest_activities::message::Redacted::new(vec![(
            "Message-ID".to_owned(),
            "<digest@shop.example>".to_owned(),
        )]),
        mime: Redacted::new(text.as_bytes().to_vec()),
        content_hash: "0".repeat(64),
    }
}

async fn start(behaviour: Behaviour) -> Sandbox {
    Sandbox::start(behaviour, loopback(), None).await.unwrap()
}

async fn start_on(behaviour: Behaviour, log: &Path) -> Sandbox {
    Sandbox::start(behaviour, loopback(), Some(log.to_owned())).await.unwrap()
}

/// A behaviour under which `customer` meets `kinds`, in order.
fn scripted(mut behaviour: Behaviour, customer: &str, kinds: &[FaultKind]) -> Behaviour {
    behaviour.faults.customers.push(CustomerFaults {
        customer: customer.to_owned(),
        kinds: kinds.to_vec(),
        times: 1,
        invisible: false,
    });
    behaviour
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("no {what}"))
}

/// One attempt, as `deliver` makes it. A request that the script leaves hanging is given up as soon
/// as the sandbox is through with it, and is then unknown.
async fn attempt(sandbox: &Sandbox, key: &OperationKey, message: &FrozenMessage) -> Reply {
    let provider = sandbox.provider();
    let before = sandbox.witness();
    let ready = provider.prepare(key, message).await.unwrap();
    let hangs = || {
        let now = sandbox.witness();
        let request = now.requests.get(before.requests.len())?;
        match request.fault? {
            FaultKind::HangBeforeAcceptance => Some(()),
            // A replay of an accepted message is answered, and lost, without a second acceptance.
            FaultKind::AcceptThenHang => now.by_key().contains_key(&*key.to_string()).then_some(()),
            _ => None,
        }
    };
    tokio::select! {
        reply = soon("reply", ready.hand_over()) => reply,
        () = until("the request hangs", || hangs().is_some()) => Reply::Unknown("given up".into()),
    }
}

fn accepted(witness: &Witness, key: &OperationKey) -> Vec<String> {
    let key = key.to_string();
    let of_key = witness.acceptances.iter().filter(|acceptance| acceptance.key == key);
    of_key.map(|acceptance| acceptance.id.clone()).collect()
}

/// What an adapter says about one attempt must be true, whatever the contract.
fn is_true(reply: &Reply, before: &[String], after: &[String]) -> Result<(), String> {
    let (old, new) = after.split_at(before.len());
    let holds = old == before
        && match reply {
            Reply::NotSent(failure) => new.is_empty() && failure.class != FailureClass::Ambiguous,
            Reply::Accepted { message_id: Some(id) } => after.contains(id) && new.len() <= 1,
            Reply::Accepted { message_id: None } => !after.is_empty() && new.len() <= 1,
            Reply::Unknown(_) => new.len() <= 1,
        };
    holds.then_some(()).ok_or(format!("{reply:?} with {before:?}, then {after:?}"))
}

#[tokio::test]
async fn every_fault_is_told_as_what_it_is() {
    use FailureClass::{Configuration, Overloaded, RateLimited, Recipient, Rejected, Suppressed};
    let mut covered = Vec::new();
    for (kind, class, accepts) in [
        (FaultKind::RateLimit, Some(RateLimited), false),
        (FaultKind::Overload, Some(Overloaded), false),
        (FaultKind::Configuration, Some(Configuration), false),
        (FaultKind::RefuseRecipient, Some(Recipient), false),
        (FaultKind::Suppress, Some(Suppressed), false),
        (FaultKind::Reject, Some(Rejected), false),
        (FaultKind::ServerError, None, false),
        (FaultKind::HangBeforeAcceptance, None, false),
        (FaultKind::ResetBeforeAcceptance, None, false),
        (FaultKind::AcceptThenServerError, None, true),
        (FaultKind::AcceptThenHang, None, true),
        (FaultKind::AcceptThenReset, None, true),
        (FaultKind::AcceptThenLateAnswer, None, true),
        (FaultKind::AcceptThenGarbage, None, true),
        (FaultKind::AcceptThenTruncate, None, true),
    ] {
        covered.push(kind);
        let mut behaviour = scripted(Behaviour::none(), "a", &[kind]);
        behaviour.faults.late_answer = SignedDuration::from_millis(50);
        let sandbox = start(behaviour).await;
        let reply = attempt(&sandbox, &key("a"), &message("hello")).await;
        let ids = accepted(&sandbox.witness(), &key("a"));
        is_true(&reply, &[], &ids).unwrap();
        assert_eq!(ids.len(), usize::from(accepts), "{kind:?}");
        match (kind, &reply) {
            (FaultKind::AcceptThenLateAnswer, Reply::Accepted { message_id: Some(_) })
            | (
                FaultKind::AcceptThenGarbage | FaultKind::AcceptThenTruncate,
                Reply::Accepted { message_id: None },
            ) => {}
            (_, Reply::NotSent(failure)) => assert_eq!(Some(failure.class), class, "{kind:?}"),
            (_, reply) => {
                assert!(
                    matches!(reply, Reply::Unknown(_)) && class.is_none(),
                    "{kind:?}: {reply:?}"
                );
            }
        }
        // The script is over: the next request is fine.
        let next = attempt(&sandbox, &key("a"), &message("hello")).await;
        assert!(matches!(next, Reply::Accepted { message_id: Some(_) }), "{kind:?}: {next:?}");
    }
    assert_eq!(covered, FaultKind::ALL);
}

#[tokio::test]
async fn a_reset_arrives_as_one() {
    let kinds = [FaultKind::AcceptThenReset, FaultKind::ResetBeforeAcceptance];
    let sandbox = start(scripted(Behaviour::none(), "a", &kinds)).await;
    for _ in kinds {
        let reply = attempt(&sandbox, &key("a"), &message("hello")).await;
        assert_eq!(reply, Reply::Unknown("http connection reset".into()));
    }
}

#[tokio::test]
async fn a_429_asks_for_its_wait_in_both_forms() {
    let mut behaviour = Behaviour::none();
    behaviour.faults.shares.insert(FaultKind::RateLimit, 1.0);
    behaviour.faults.retry_after = SignedDuration::from_secs(90);
    let sandbox = start(behaviour).await;
    let mut waits = Vec::new();
    for customer in 0..40 {
        let reply = attempt(&sandbox, &key(&format!("{customer}")), &message("hello")).await;
        let Reply::NotSent(failure) = reply else { panic!("{reply:?}") };
        waits.push(failure.retry_after.unwrap().as_secs());
    }
    // A date is at most two seconds later, and never earlier, than the seconds asked for.
    assert!(waits.iter().all(|wait| (90..=92).contains(wait)), "{waits:?}");
    assert!(waits.contains(&90) && waits.iter().any(|wait| *wait > 90), "{waits:?}");
    assert!(sandbox.witness().acceptances.is_empty());
}

#[tokio::test]
async fn a_replay_returns_the_original_and_is_no_second_message() {
    let lost = [FaultKind::AcceptThenReset, FaultKind::AcceptThenServerError];
    let sandbox = start(scripted(Behaviour::replay(), "a", &lost)).await;
    for _ in lost {
        let reply = attempt(&sandbox, &key("a"), &message("hello")).await;
        assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    }
    let reply = attempt(&sandbox, &key("a"), &message("hello")).await;
    let Reply::Accepted { message_id: Some(id) } = reply else { panic!("{reply:?}") };
    assert_eq!(accepted(&sandbox.witness(), &key("a")), [id]);

    // Other bytes under the same key are an alarm, not a message and not a proof.
    let other = attempt(&sandbox, &key("a"), &message("other bytes")).await;
    assert_eq!(other, Reply::Unknown("http 409 key_used_with_other_body".into()));
    assert_eq!(sandbox.witness().acceptances.len(), 1);
    assert_eq!(sandbox.witness().requests_by_key()[&*key("a").to_string()], 4);
}

#[tokio::test]
async fn the_same_message_is_the_same_bytes() {
    let sandbox = start(Behaviour::none()).await;
    for _ in 0..2 {
        attempt(&sandbox, &key("a"), &message("hello")).await;
    }
    attempt(&sandbox, &key("a"), &message("other")).await;
    let witness = sandbox.witness();
    let hashes: Vec<_> = witness.acceptances.iter().map(|one| &one.body_hash).collect();
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
    assert_eq!(witness.duplicates(), [key("a").to_string()]);
}

#[tokio::test]
async fn a_rejected_duplicate_means_accepted() {
    let (window, margin) = (SignedDuration::from_mins(30), SignedDuration::from_mins(5));
    let replay = Replay::RejectsDuplicate { window, margin };
    let behaviour = Behaviour::of(Contract { replay, ..Contract::NONE });
    let sandbox = start(behaviour).await;
    let first = attempt(&sandbox, &key("a"), &message("hello")).await;
    assert!(matches!(first, Reply::Accepted { message_id: Some(_) }));
    let second = attempt(&sandbox, &key("a"), &message("hello")).await;
    assert_eq!(second, Reply::Accepted { message_id: None });
    assert_eq!(sandbox.witness().acceptances.len(), 1);
}

/// Moves every acceptance in a log back by `age`, as if it had happened then.
fn age(log: &Path, age: SignedDuration) {
    let text = std::fs::read_to_string(log).unwrap();
    let older = text.lines().map(|line| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let at: Timestamp = serde_json::from_value(line["at"].clone()).unwrap();
        line["at"] = (at - age).to_string().into();
        line
    });
    write_lines(log, older);
}

fn write_lines(log: &Path, lines: impl Iterator<Item = serde_json::Value>) {
    let lines: Vec<_> = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(log, lines.concat()).unwrap();
}

fn log() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("sandbox.jsonl");
    (folder, log)
}

#[tokio::test]
async fn outside_the_window_the_same_key_is_a_second_message() {
    let (_folder, log) = log();
    let sandbox = start_on(Behaviour::replay(), &log).await;
    attempt(&sandbox, &key("a"), &message("hello")).await;
    sandbox.stop().await;

    age(&log, SignedDuration::from_hours(23));
    let sandbox = start_on(Behaviour::replay(), &log).await;
    attempt(&sandbox, &key("a"), &message("hello")).await;
    assert_eq!(sandbox.witness().acceptances.len(), 1);
    sandbox.stop().await;

    age(&log, SignedDuration::from_hours(1));
    let sandbox = start_on(Behaviour::replay(), &log).await;
    attempt(&sandbox, &key("a"), &message("hello")).await;
    assert_eq!(sandbox.witness().duplicates(), [key("a").to_string()]);
}

#[tokio::test]
async fn the_log_survives_a_process_that_just_ends() {
    let (_folder, log) = log();
    let kinds = [FaultKind::RateLimit, FaultKind::AcceptThenReset];
    let behaviour = scripted(Behaviour::replay(), "a", &kinds);
    let sandbox = start_on(behaviour.clone(), &log).await;
    let account = sandbox.provider().provider_ref();
    for _ in kinds {
        attempt(&sandbox, &key("a"), &message("hello")).await;
    }
    let before = sandbox.witness();
    let second = Sandbox::start(behaviour.clone(), loopback(), Some(log.clone())).await;
    assert!(matches!(second, Err(SandboxError::Journal(_))), "two sandboxes write one log");
    drop(sandbox);

    let sandbox = start_on(behaviour, &log).await;
    assert_eq!(sandbox.witness(), before);
    assert_eq!(sandbox.provider().provider_ref(), account, "a doubt must find its provider again");
    // The key is known, and its faults are not repeated.
    let reply = attempt(&sandbox, &key("a"), &message("hello")).await;
    assert_eq!(reply, Reply::Accepted { message_id: Some(before.acceptances[0].id.clone()) });
    assert_eq!(sandbox.provider().witness().await.unwrap(), sandbox.witness());
}

#[tokio::test]
async fn the_witness_is_read_in_pages_without_losing_any() {
    let (_folder, log) = log();
    let lines = (1..=11_000).map(|number| {
        serde_json::json!({
            "event": "acceptance",
            "number": number,
            "key": format!("digest:2026-W42:customer-{number}"),
            "id": number.to_string(),
            "body_hash": "",
            "at": "2026-10-12T07:00:00Z",
        })
    });
    write_lines(&log, lines);
    let sandbox = start_on(Behaviour::replay(), &log).await;
    let witness = sandbox.provider().witness().await.unwrap();
    assert_eq!(witness.acceptances.len(), 11_000);
    assert_eq!(witness, sandbox.witness());
}

#[tokio::test]
async fn a_look_up_finds_what_was_accepted_and_nothing_else() {
    let behaviour = scripted(Behaviour::lookup(true), "a", &[FaultKind::AcceptThenReset]);
    let behaviour = scripted(behaviour, "b", &[FaultKind::ResetBeforeAcceptance]);
    let sandbox = start(behaviour).await;
    let provider = sandbox.provider();
    for customer in ["a", "b"] {
        let reply = attempt(&sandbox, &key(customer), &message("hello")).await;
        assert!(matches!(reply, Reply::Unknown(_)));
    }
    let id = accepted(&sandbox.witness(), &key("a")).pop();
    let now = Timestamp::now();
    assert_eq!(provider.look_up(&key("a"), None, now).await, Found::Accepted { message_id: id });
    assert_eq!(provider.look_up(&key("b"), None, now).await, Found::Miss);
    // A key whose encoded form needs encoding again.
    assert_eq!(provider.look_up(&key("ü&=1"), None, now).await, Found::Miss);
    attempt(&sandbox, &key("ü&=1"), &message("hello")).await;
    assert!(matches!(provider.look_up(&key("ü&=1"), None, now).await, Found::Accepted { .. }));

    sandbox.stop().await;
    let gone = provider.look_up(&key("a"), None, now).await;
    assert!(matches!(gone, Found::Unavailable(_)), "{gone:?}");
}

#[tokio::test]
async fn a_look_up_finds_nothing_before_its_lag_is_over_or_if_it_is_blind() {
    let (_folder, log) = log();
    let mut behaviour = Behaviour::lookup(false);
    behaviour.lookup_lag = SignedDuration::from_hours(1);
    behaviour.faults.customers.push(CustomerFaults {
        customer: "b".into(),
        kinds: Vec::new(),
        times: 1,
        invisible: true,
    });
    let sandbox = start_on(behaviour.clone(), &log).await;
    for customer in ["a", "b"] {
        attempt(&sandbox, &key(customer), &message("hello")).await;
    }
    let now = Timestamp::now();
    assert_eq!(sandbox.provider().look_up(&key("a"), None, now).await, Found::Miss);
    sandbox.stop().await;

    age(&log, SignedDuration::from_hours(1));
    let sandbox = start_on(behaviour, &log).await;
    let found = sandbox.provider().look_up(&key("a"), None, now).await;
    assert!(matches!(found, Found::Accepted { .. }), "{found:?}");
    assert_eq!(sandbox.provider().look_up(&key("b"), None, now).await, Found::Miss);
    assert_eq!(sandbox.provider().contract().lookup, Lookup::ByKey { miss_counts: false });
}

#[tokio::test]
async fn a_sandbox_without_look_up_does_not_say_that_it_missed() {
    let sandbox = start(Behaviour::none()).await;
    let found = sandbox.provider().look_up(&key("a"), None, Timestamp::now()).await;
    assert_eq!(found, Found::Unavailable("http 404 no_lookup".into()));
}

#[tokio::test]
async fn a_request_in_flight_is_not_taken_twice_and_goes_on_without_its_client() {
    let mut behaviour = Behaviour::replay();
    behaviour.latency = SignedDuration::from_secs(1);
    let sandbox = start(behaviour).await;
    let provider = sandbox.provider();
    let first = provider.prepare(&key("a"), &message("hello")).await.unwrap();
    let mut first = first.hand_over();
    tokio::select! {
        reply = &mut first => panic!("answered at once: {reply:?}"),
        () = until("the first request is in", || !sandbox.witness().requests.is_empty()) => {}
    }
    let second = attempt(&sandbox, &key("a"), &message("hello")).await;
    assert_eq!(second, Reply::Unknown("http 409 in_flight".into()));
    drop(first);
    until("the first is accepted", || !sandbox.witness().acceptances.is_empty()).await;
    let third = attempt(&sandbox, &key("a"), &message("hello")).await;
    assert!(matches!(third, Reply::Accepted { message_id: Some(_) }), "{third:?}");
    assert_eq!(sandbox.witness().acceptances.len(), 1);
}

#[tokio::test]
async fn what_the_documentation_does_not_allow_is_refused() {
    let sandbox = start(Behaviour::none()).await;
    let mut nobody = message("hello");
    nobody.recipient = Redacted::new(String::new());
    let reply = attempt_malformed(&sandbox, &nobody).await;
    assert!(matches!(&reply, Reply::NotSent(f) if f.class == FailureClass::Schema), "{reply:?}");

    let huge = message(&"x".repeat(10_000_001));
    let failure = sandbox.provider().prepare(&key("a"), &huge).await.err().unwrap();
    assert_eq!(failure.class, FailureClass::Schema);

    let address: SocketAddr = sandbox.url().trim_start_matches("http://").parse().unwrap();
    for request in [
        Request::post("/v1/messages").header("host", "sandbox").body(Full::default()),
        Request::post("/v1/messages")
            .header("host", "sandbox")
            .header("idempotency-key", "a")
            .body(Full::from("{}")),
    ] {
        let connection =
            Connection::open(&address.ip().to_string(), address.port(), DEADLINE).await.unwrap();
        assert_eq!(connection.exchange(request.unwrap()).await.unwrap().status, 400);
    }
    assert_eq!(sandbox.witness(), Witness::default());
}

async fn attempt_malformed(sandbox: &Sandbox, message: &FrozenMessage) -> Reply {
    let ready = sandbox.provider().prepare(&key("a"), message).await.unwrap();
    soon("reply", ready.hand_over()).await
}

/// A prepared delivery to a server that only listens, and the server's end of its connection.
async fn prepared() -> (Box<dyn Ready>, TcpStream) {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let provider = SandboxProvider::new(&url, None, Contract::NONE).unwrap();
    let ready = provider.prepare(&key("a"), &message("hello")).await.unwrap();
    (ready, listener.accept().await.unwrap().0)
}

/// What arrives until the connection ends, and how it ends.
async fn rest(mut server: TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let end = soon("end of the connection", server.read_to_end(&mut bytes)).await;
    (bytes, end.err().map(|error| error.kind()))
}

#[tokio::test]
async fn dropping_the_hand_over_resets_the_connection_at_once() {
    let (ready, mut server) = prepared().await;
    let mut hand_over = ready.hand_over();
    let mut byte = [0];
    tokio::select! {
        reply = &mut hand_over => panic!("nobody answered, but {reply:?}"),
        read = server.read_exact(&mut byte) => { read.unwrap(); }
    }
    drop(hand_over);
    // The socket is closed by the drop itself, not by a task that may come later.
    let server = server.into_std().unwrap();
    let end = loop {
        match std::io::Read::read(&mut &server, &mut [0; 4096]) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn nothing_is_written_before_the_hand_over_is_polled_or_by_giving_up() {
    let (ready, server) = prepared().await;
    drop(ready.hand_over());
    assert_eq!(rest(server).await, (Vec::new(), Some(ErrorKind::ConnectionReset)));

    let (ready, server) = prepared().await;
    ready.abandon().await;
    assert_eq!(rest(server).await, (Vec::new(), Some(ErrorKind::ConnectionReset)));

    let (ready, server) = prepared().await;
    drop(ready);
    assert_eq!(rest(server).await, (Vec::new(), Some(ErrorKind::ConnectionReset)));
}

#[tokio::test]
async fn a_connection_that_ends_before_the_request_proves_not_sent() {
    let (ready, server) = prepared().await;
    drop(server);
    let reply = soon("reply", ready.hand_over()).await;
    assert!(
        matches!(&reply, Reply::NotSent(failure) if failure.class == FailureClass::Transport),
        "{reply:?}"
    );
}

/// What the adapter makes of `answer`, sent byte for byte before the server closes.
async fn answered_with(answer: &[u8]) -> Reply {
    let (ready, mut server) = prepared().await;
    let reply = tokio::spawn(ready.hand_over());
    // The whole request, as the adapter closes with a reset once it has what it needs.
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert_ne!(soon("request", server.read_buf(&mut request)).await.unwrap(), 0);
    }
    server.write_all(answer).await.ok();
    drop(server);
    soon("reply", reply).await.unwrap()
}

#[tokio::test]
async fn strange_answers_prove_nothing_and_a_strange_success_is_one() {
    for answer in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 429",
        "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\n<html>",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 21\r\n\r\n{\"code\":\"overloaded\"}",
    ] {
        let reply = answered_with(answer.as_bytes()).await;
        assert!(matches!(reply, Reply::Unknown(_)), "{answer:?}: {reply:?}");
    }
    let mut endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n".to_vec();
    endless.resize(11_000_000, b' ');
    for answer in [
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".as_slice(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        &endless,
    ] {
        assert_eq!(answered_with(answer).await, Reply::Accepted { message_id: None });
    }
}

#[tokio::test]
async fn nobody_listening_is_a_transport_failure() {
    let sandbox = start(Behaviour::none()).await;
    let provider = sandbox.provider();
    sandbox.stop().await;
    let failure = provider.prepare(&key("a"), &message("hello")).await.err().unwrap();
    assert_eq!(failure.class, FailureClass::Transport);
    assert_eq!(failure.code, "http connect refused");
    assert!(provider.check().await.unwrap_err().contains("start it"));
}

#[tokio::test]
async fn the_check_compares_the_contracts() {
    let sandbox = start(Behaviour::none()).await;
    sandbox.provider().check().await.unwrap();
    let promises = Behaviour::replay().contract;
    let provider = SandboxProvider::new(&sandbox.url(), None, promises).unwrap();
    assert!(provider.check().await.unwrap_err().contains("another contract"));
}

#[tokio::test]
async fn stopping_cuts_what_hangs() {
    let kinds = [FaultKind::AcceptThenHang];
    let sandbox = start(scripted(Behaviour::none(), "a", &kinds)).await;
    let ready = sandbox.provider().prepare(&key("a"), &message("hello")).await.unwrap();
    let reply = tokio::spawn(ready.hand_over());
    until("it is accepted", || !sandbox.witness().acceptances.is_empty()).await;
    soon("stop", sandbox.stop()).await;
    let reply = soon("reply", reply).await.unwrap();
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
}

#[tokio::test]
async fn other_machines_are_not_listened_to() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = Sandbox::start(Behaviour::none(), everywhere, None).await;
    assert!(matches!(refused, Err(SandboxError::NotLoopback(_))));
}

fn contracts() -> impl Strategy<Value = Contract> {
    let (window, margin) = (SignedDuration::from_hours(24), SignedDuration::from_hours(1));
    let replay = prop_oneof![
        Just(Replay::None),
        Just(Replay::ReturnsOriginal { window, margin }),
        Just(Replay::RejectsDuplicate { window, margin }),
    ];
    let lookup = Just(Lookup::ByKey { miss_counts: true });
    (replay, lookup).prop_map(|(replay, lookup)| Contract { replay, lookup, ..Contract::NONE })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any script, contract and seed: what the adapter says is true, a contract that replays
    /// accepts a key at most once, a look-up that may miss is right, and the same run again is the
    /// same run.
    #[test]
    fn whatever_the_script_the_replies_are_true(
        contract in contracts(),
        seed: u64,
        kinds in proptest::sample::subsequence(FaultKind::ALL.to_vec(), 1..=6),
    ) {
        let mut behaviour = Behaviour::of(contract);
        behaviour.seed = seed;
        behaviour.faults.late_answer = SignedDuration::from_millis(1);
        behaviour.faults.shares = kinds.into_iter().map(|kind| (kind, 0.15)).collect();
        let run = || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(check_run(&behaviour))
        };
        let first = run().map_err(TestCaseError::fail)?;
        prop_assert_eq!(first, run().map_err(TestCaseError::fail)?);
    }
}

/// Sends to some customers until each has an answer, and returns what the sandbox saw, without times.
async fn check_run(behaviour: &Behaviour) -> Result<Vec<String>, String> {
    let sandbox = start(behaviour.clone()).await;
    for customer in 0..8 {
        let key = key(&format!("customer-{customer}"));
        for _ in 0..4 {
            let before = accepted(&sandbox.witness(), &key);
            let reply = attempt(&sandbox, &key, &message("hello")).await;
            let after = accepted(&sandbox.witness(), &key);
            is_true(&reply, &before, &after)?;
            if behaviour.contract.replay != Replay::None && after.len() > 1 {
                return Err(format!("{key} was accepted twice under {:?}", behaviour.contract));
            }
            let found = sandbox.provider().look_up(&key, None, Timestamp::now()).await;
            let hit = Found::Accepted { message_id: after.first().cloned() };
            let right = if after.is_empty() { Found::Miss } else { hit };
            if found != right {
                return Err(format!("the look-up found {found:?}, not {right:?}"));
            }
            if matches!(reply, Reply::Accepted { .. }) {
                break;
            }
        }
    }
    let witness = sandbox.witness();
    let requests = witness.requests.iter().map(|r| format!("{} {} {:?}", r.key, r.nth, r.fault));
    let accepted = witness.acceptances.iter().map(|a| format!("{} {}", a.key, a.id));
    Ok(requests.chain(accepted).collect())
}
