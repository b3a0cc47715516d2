//! What a provider can do to a run: it throttles, is overloaded, answers strangely or not at all, or
//! cannot be reached.

use crate::end_to_end::world::{PERIOD, Plan, World, counts, of_mail, world};
use digest_tests::smtp::{Authority, SmtpServer, TlsMode, Traits};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::Arc;

const RATE: usize = 20;
/// What a 429 asks for.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// The most requests that came within `seconds`.
fn busiest(world: &World, seconds: i64) -> usize {
    let mut times: Vec<_> = world.requests().into_iter().map(|request| request.at).collect();
    times.sort_unstable();
    let within = |from: usize| {
        let end = times[from] + SignedDuration::from_secs(seconds);
        times[from..].iter().take_while(|at| **at < end).count()
    };
    (0..times.len()).map(within).max().unwrap_or(0)
}

/// A provider that refuses a large share of the requests, and repeats what it took; so many workers
/// share its rate.
async fn refusals(name: &str, customers: usize, workers: usize) {
    let share = |kind: &str, share: f64| (kind.to_owned(), toml::Value::from(share));
    let shares: toml::Table = [
        share("rate_limit", 0.2),
        share("overload", 0.1),
        share("server_error", 0.05),
        share("accept_then_reset", 0.05),
        share("accept_then_truncate", 0.05),
        share("accept_then_garbage", 0.05),
    ]
    .into_iter()
    .collect();
    let plan = world(name)
        .customers(customers)
        .with("sandbox.contract", "replay")
        .with("sandbox.shares", shares)
        .with("sandbox.retry_after", "2s")
        .with("retry.overloaded.max_attempts", 8)
        .with("provider.rate_per_second", f64::from(u32::try_from(RATE).unwrap()));
    let Some(mut world) = plan.start().await else { return };
    let _sandbox = world.sandbox_outside().await;
    let mut running = Vec::new();
    for _ in 0..workers {
        running.push(world.worker().await);
    }
    world.start_run().await;
    let n = u64::try_from(customers).unwrap();
    let status = world.closed().await;
    counts(&status, &[("selected", n), ("cleaned", n), ("unknown", 0), ("dead", 0)]);
    let mut by_key: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for request in world.requests() {
        by_key.entry(request.key.clone()).or_default().push(request);
    }
    let mut waits = 0;
    for (key, requests) in &by_key {
        for pair in requests.windows(2) {
            if pair[0].fault.as_deref() == Some("rate_limit") {
                let waited = pair[1].at.duration_since(pair[0].at);
                assert!(waited >= RETRY_AFTER, "{key} went again after {waited}");
                waits += 1;
            }
        }
        let of = |kind: &str| requests.iter().filter(|r| r.fault.as_deref() == Some(kind)).count();
        assert!(of("overload") <= 8 && of("rate_limit") <= 30, "{key} is beyond its budget");
    }
    assert!(waits > 0, "no request was throttled");
    let busiest_second = busiest(&world, 1);
    println!(
        "n = {} requests of {customers} customers by {workers} workers: {waits} waits as asked for, \
         at most {busiest_second} in any second at a rate of {RATE}",
        world.requests().len()
    );
    // A machine that stalls for a moment sends what was due in it at once, and no more than that.
    let in_ten = busiest(&world, 10);
    assert!(in_ten <= 11 * RATE, "{in_ten} requests within ten seconds");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_waited_out_as_asked_within_the_rate() {
    refusals("refusals", 30, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn three_workers_wait_out_many_refusals_as_asked_within_their_one_rate() {
    refusals("refusals-400", 400, 3).await;
}

/// Every answer of a provider that promises nothing, with what becomes of the operation.
const ANSWERS: [(&str, &str, Option<&str>); 14] = [
    ("rate_limit", "cleaned", None),
    ("overload", "cleaned", None),
    ("refuse_recipient", "dead", Some("recipient")),
    ("suppress", "suppressed", Some("suppressed")),
    ("reject", "dead", Some("rejected")),
    ("server_error", "unknown", Some("ambiguous")),
    ("hang_before_acceptance", "unknown", Some("ambiguous")),
    ("reset_before_acceptance", "unknown", Some("ambiguous")),
    ("accept_then_server_error", "unknown", Some("ambiguous")),
    ("accept_then_hang", "unknown", Some("ambiguous")),
    ("accept_then_reset", "unknown", Some("ambiguous")),
    ("accept_then_late_answer", "cleaned", None),
    ("accept_then_garbage", "cleaned", None),
    ("accept_then_truncate", "cleaned", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_a_provider_ends_where_its_class_says_and_the_books_balance() {
    let faults = ANSWERS.iter().zip(1..).map(|((kind, ..), number)| {
        let mut fault = toml::Table::new();
        fault.insert("customer".to_owned(), format!("customer-{number:04}").into());
        fault.insert("kinds".to_owned(), vec![toml::Value::from(*kind)].into());
        toml::Value::Table(fault)
    });
    let plan = world("answers")
        .customers(ANSWERS.len() + 3)
        .with("sandbox.late_answer", "2s")
        .with("sandbox.fault", faults.collect::<Vec<_>>());
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    for ((kind, state, class), number) in ANSWERS.iter().zip(1..) {
        let shown = world.show(&world.key(&format!("customer-{number:04}"))).await;
        assert_eq!(shown["state"], *state, "{kind}: {shown:#}");
        assert_eq!(shown["class"].as_str(), *class, "{kind}: {shown:#}");
    }
    let of = |name: &str| status[name].as_u64().unwrap();
    let at_rest = of("cleaned") + of("suppressed") + of("dead") + of("unknown") + of("expired");
    assert_eq!(at_rest, of("selected"), "{status:#}");
    // Each was asked for once, and again only where it was proven not sent.
    for request in world.requests().iter().filter(|request| request.nth > 1) {
        let number: usize = request.key.rsplit('-').next().unwrap().parse().unwrap();
        let kind = ANSWERS[number - 1].0;
        assert!(["rate_limit", "overload"].contains(&kind), "{kind} was sent again");
    }
    world.check().await;
}

fn three_tries(plan: Plan) -> Plan {
    plan.with("retry.transport.max_attempts", 3)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_costs_the_budget_and_no_more() {
    let plan = three_tries(world("no-dns")).customers(3).with("provider.kind", "smtp");
    let plan = plan.with("provider.url", "smtps://mail.invalid:465");
    let Some(mut world) = plan.start().await else { return };
    world.received_by(Default::default);
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 3), ("dead", 3), ("unknown", 0)]);
    for number in 1..=3 {
        let shown = world.show(&world.key(&format!("customer-000{number}"))).await;
        assert_eq!(shown["class"], "transport", "{shown:#}");
        assert_eq!(shown["attempts"].as_array().unwrap().len(), 3, "{shown:#}");
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_nobody_vouches_for_holds_the_run_and_costs_nobody_a_message() {
    let authority = Arc::new(Authority::new().unwrap());
    let tls = Some((TlsMode::Implicit, Arc::clone(&authority)));
    let traits = Traits { tls, ..Traits::default() };
    let server = Arc::new(SmtpServer::start(traits, []).unwrap());
    let plan = three_tries(world("bad-tls")).customers(3).smtp(server.port());
    let plan = plan.with("provider.url", format!("smtps://localhost:{}", server.port()));
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let worker = world.worker().await;
    world.start_run().await;
    let held = world.until_status("a hold", |status| status["state"] == "held").await;
    counts(&held, &[("selected", 3), ("dead", 0), ("sent", 0)]);
    assert_eq!(server.record().ends_of_data, 0);
    assert!(!server.record().commands.iter().any(|(_, line)| line.starts_with("MAIL")));
    worker.kill();
    world.edit("provider.ca_file", authority.file().display().to_string());
    let _worker = world.worker().await;
    let resume = format!("resume --period {PERIOD} --reason trusted --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3), ("dead", 0)]);
    world.check().await;
}
