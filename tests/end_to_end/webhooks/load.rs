//! A thousand webhooks a second, measured: how soon each is answered, which is once it is stored.

use super::{SECRETS, WEBHOOK_SECRET, event};
use crate::end_to_end::world::{Plan, counts, through, until, world};
use digest_tests::api_server::{Resend, Taken};
use digest_tests::{free_port, svix};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RATE: u32 = 1_000;
const SECONDS: u32 = 10;
/// As many connections as a provider keeps open.
const CONNECTIONS: u32 = 64;
const IN_TIME: Duration = Duration::from_millis(100);
/// What a provider tells of a message that arrives and is read.
const NAMES: [&str; 4] = ["email.sent", "email.delivered", "email.opened", "email.opened"];
/// One in so many tells what the ledger does not know: that a message came back.
const BOUNCED: u32 = 20;

/// A genuine request, whole.
fn request(port: u16, number: u32, taken: &Taken) -> Vec<u8> {
    let name = NAMES[number as usize % NAMES.len()];
    let name = if number.is_multiple_of(BOUNCED) { "email.bounced" } else { name };
    let body = event(name, taken, r#"{"type":"Transient"}"#);
    let at = Timestamp::now().as_second();
    let id = format!("event-{number}");
    let signed = svix::sign(WEBHOOK_SECRET, &id, at, body.as_bytes()).unwrap();
    let mut head = format!(
        "POST /webhooks/resend HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in signed {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// Posts its share of the requests, each when it is due whether or not the one before was answered
/// late; how long after that each answer came.
async fn sender(port: u16, start: Instant, requests: Vec<(u32, Vec<u8>)>) -> Vec<Duration> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut took = Vec::new();
    let mut answer = vec![0; 4_096];
    for (number, request) in requests {
        let due = start + Duration::from_secs(1) * number / RATE;
        tokio::time::sleep_until(due.into()).await;
        stream.write_all(&request).await.unwrap();
        let mut read = 0;
        while !answer[..read].ends_with(b"stored\n") {
            let more = stream.read(&mut answer[read..]).await.unwrap();
            assert!(more > 0, "closed after {:?}", String::from_utf8_lossy(&answer[..read]));
            read += more;
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
        took.push(due.elapsed());
    }
    took
}

async fn a_thousand_a_second(plan: Plan, ledger: &str) {
    let port = free_port().unwrap();
    let plan = plan.customers(200).with("webhooks.listen", format!("127.0.0.1:{port}"));
    let Some((world, server)) = through(plan, Resend, Vec::new()).await else { return };
    let _worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 200)]);
    let taken = server.record().taken;
    let n = RATE * SECONDS;
    let mut shares: Vec<Vec<(u32, Vec<u8>)>> = vec![Vec::new(); CONNECTIONS as usize];
    for number in 0..n {
        let about = &taken[number as usize % taken.len()];
        shares[(number % CONNECTIONS) as usize].push((number, request(port, number, about)));
    }
    let start = Instant::now() + Duration::from_millis(200);
    let senders: Vec<_> =
        shares.into_iter().map(|share| tokio::spawn(sender(port, start, share))).collect();
    let mut took = Vec::new();
    for sender in senders {
        took.extend(sender.await.unwrap());
    }
    let lasted = start.elapsed();
    took.sort_unstable();
    let at = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (share * f64::from(n - 1)) as usize;
        took[index]
    };
    let in_time = took.iter().filter(|took| **took <= IN_TIME).count();
    let in_time = f64::from(u32::try_from(in_time).unwrap()) / f64::from(n) * 100.0;
    println!(
        "n = {n} webhooks at {RATE}/s, ledger on {ledger}: {in_time:.2}% answered within {IN_TIME:?} \
         (median {:.1?}, 99% {:.1?}, all {:.1?}), {:.0} stored/s",
        at(0.5),
        at(0.99),
        at(1.0),
        f64::from(n) / lasted.as_secs_f64()
    );
    // Every one that was answered is there, and none waits to be told.
    assert_eq!(world.ledger.count("@provider_events").await, u64::from(n));
    until("every event told", async || {
        (world.ledger.count("@provider_events where told_at is null").await == 0).then_some(())
    })
    .await;
    let bounced = (0..n).step_by(BOUNCED as usize).map(|number| number % 200);
    let bounced = bounced.collect::<BTreeSet<_>>().len() as u64;
    let expected = [("cleaned", 200), ("contradicted", 0), ("undelivered", bounced)];
    counts(&world.closed().await, &expected);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_thousand_webhooks_a_second_are_stored_in_sqlite() {
    a_thousand_a_second(world("load-sqlite"), "SQLite").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_thousand_webhooks_a_second_are_stored_in_postgres() {
    a_thousand_a_second(world("load-postgres").postgres(), "PostgreSQL").await;
}
