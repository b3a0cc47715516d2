//! Several messages in one request: what becomes of each when one is refused, when all are, and when
//! nobody hears the answer.

use crate::end_to_end::outage::behind_a_proxy;
use crate::end_to_end::world::{
    API_KEY, Customer, PERIOD, Plan, Taken, World, counts, through, until, world,
};
use digest_activities::message::Redacted;
use digest_activities::provider::api::ApiSettings;
use digest_activities::{cleanup, delivery, eligibility};
use digest_tests::api_server::{
    Act, ApiServer, Dialect, End, Phase, Postmark, Resend, Response, Ses,
};
use digest_workflows::activities::{
    DeliverInput, EnqueueInput, OperationInput, RunPlan, RunStart, WatchInput,
};
use digest_workflows::operation::OperationKey;
use futures::future::join_all;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// A campaign in batches, with times that a batch of a hundred keeps on a busy machine.
fn batched(name: &str) -> Plan {
    world(name)
        .with("provider.batch", 100)
        .with("provider.timeout", "3s")
        .with("provider.lease", "8s")
        .with("unknown.escalate_after", "20s")
        .with("worker.shutdown_grace", "6s")
}

/// So many customers, of whom the provider refuses the address of those with these numbers.
fn with_bad_addresses(plan: Plan, count: usize, bad: &[usize]) -> Plan {
    let customer = |number: usize| {
        let mut customer = Customer::new(format!("customer-{number:04}"), number);
        if bad.contains(&number) {
            customer.email = format!("bad{number}@shop.example");
        }
        customer
    };
    plan.these((1..=count).map(customer).collect())
}

/// What holds at the end of every story: nobody got two, the books balance, each key went with one
/// content only, and no request is kept.
async fn check(world: &World, server: &ApiServer) {
    world.check().await;
    let (code, report) = world.audited("--no-provider").await;
    assert_eq!(code, 0, "{report:#}");
    let mut bodies = BTreeMap::<String, BTreeSet<Vec<u8>>>::new();
    for request in server.record().requests {
        if let Some(key) = request.header("idempotency-key") {
            bodies.entry(key.to_owned()).or_default().insert(request.body.clone());
        }
    }
    for (key, bodies) in bodies {
        assert_eq!(bodies.len(), 1, "{key} went with other bytes");
    }
    assert_eq!(world.ledger.count("@batches where request is not null").await, 0);
}

/// How many requests carried a batch of more than one.
fn shared(server: &ApiServer) -> usize {
    let of = |body: &Value| body.as_array().map_or(0, Vec::len);
    let requests = server.record().requests;
    requests.iter().filter(|request| of(&request.json()) > 1).count()
}

/// A second run of the period, which must send nothing.
async fn run_again(world: &World, server: &ApiServer) {
    let before = server.record().requests.len();
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert_eq!(server.record().requests.len(), before, "something was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_in_a_batch_one_is_refused_and_the_other_is_sent_and_recorded() {
    let plan = with_bad_addresses(batched("batch-of-two"), 2, &[2]);
    let Some((world, server)) = through(plan, Postmark, vec![]).await else { return };
    let _worker = world.worker_with(&[API_KEY]).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 2), ("cleaned", 1), ("dead", 1)]);
    let refused = world.show(&world.key("customer-0002")).await;
    assert_eq!(refused["class"], "recipient", "{refused:#}");
    let batch = &refused["attempts"][0]["batch"];
    assert!(batch.as_str().unwrap().contains(":batch:"), "{refused:#}");
    run_again(&world, &server).await;
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ses_builds_many_in_one_request_and_refuses_one_alone() {
    let plan = with_bad_addresses(batched("batch-ses").with("provider.batch", 50), 30, &[7]);
    let plan = plan.with("provider.region", "eu-west-1");
    let Some((world, server)) = through(plan, Ses { bulk: true }, vec![]).await else { return };
    let secrets =
        [("DIGESTD_PROVIDER_USERNAME", "AKIDEXAMPLE"), ("DIGESTD_PROVIDER_PASSWORD", "secret")];
    let _worker = world.worker_with(&secrets).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 30), ("cleaned", 29), ("dead", 1)]);
    let refused = world.show(&world.key("customer-0007")).await;
    assert_eq!(refused["class"], "recipient", "{refused:#}");
    assert!(server.record().requests.len() < 30, "nothing was shared");
    run_again(&world, &server).await;
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_are_refused_for_one_each_goes_alone_and_only_that_one_is_dead() {
    let plan = with_bad_addresses(batched("batch-one-bad"), 100, &[57]);
    let Some((world, server)) = through(plan, Resend, vec![]).await else { return };
    let _worker = world.worker_with(&[API_KEY]).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 100), ("cleaned", 99), ("dead", 1)]);
    let dead = world.show(&world.key("customer-0057")).await;
    assert_eq!(dead["class"], "recipient", "{dead:#}");
    let attempts = dead["attempts"].as_array().unwrap();
    assert!(attempts[0]["outcome"].as_str().unwrap().contains("batch refused"), "{dead:#}");
    assert!(attempts.last().unwrap().get("batch").is_none(), "it went alone: {dead:#}");
    run_again(&world, &server).await;
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_429_for_a_batch_is_waited_out_by_all_and_three_bad_addresses_are_three_dead_letters() {
    let slow_down = Response::new(429, r#"{"ErrorCode":429,"Message":"slow down"}"#);
    let script = vec![Act::Say(slow_down.with("retry-after", "1"))];
    let plan = with_bad_addresses(batched("batch-429"), 100, &[1, 50, 100]);
    let Some((world, server)) = through(plan, Postmark, script).await else { return };
    let _worker = world.worker_with(&[API_KEY]).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 100), ("cleaned", 97), ("dead", 3)]);
    let shown = world.digestd("dead-letters --json").await;
    let letters: Value = serde_json::from_str(&shown.stdout).unwrap();
    for letter in letters["operations"].as_array().unwrap() {
        assert_eq!(letter["class"], "recipient", "{letters:#}");
    }
    let throttled = "@attempts where class = 'rate_limited' and batch is not null";
    assert!(world.ledger.count(throttled).await > 1, "no batch was throttled");
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_an_answer_goes_again_whole_and_nobody_gets_two() {
    let script = vec![
        Act::Fail(Phase::Taken, End::Reset),
        Act::Fail(Phase::Received, End::Close),
        Act::Fail(Phase::Taken, End::Hang),
    ];
    let plan = batched("batch-lost").customers(40).postgres();
    let Some((world, server)) = through(plan, Resend, script).await else { return };
    let _worker = world.worker_with(&[API_KEY]).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 40), ("cleaned", 40), ("unknown", 0)]);
    assert!(shared(&server) > 0, "nothing was shared");
    check(&world, &server).await;
}

/// Where a worker may die in the life of a batch.
const POINTS: [&str; 9] = [
    "before-intent",
    "intent-uncommitted",
    "intent-recorded",
    "half-written",
    "answer-waiting",
    "accepted",
    "outcome-uncommitted",
    "outcome-recorded",
    // While it goes again: the worker before has died there too.
    "accepted:1",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_worker_that_dies_anywhere_in_a_batch_costs_nobody_a_message() {
    let mut repeated = 0;
    for (number, point) in POINTS.into_iter().enumerate() {
        let name = format!("batch-dies-{number}");
        let plan = batched(&name).customers(20);
        let plan = if number % 2 == 0 { plan } else { plan.postgres() };
        let Some((world, server)) = through(plan, Resend, vec![]).await else { return };
        let dying = [API_KEY, ("DIGESTD_CRASH_AT", point)];
        let worker = world.worker_with(&dying).await;
        world.start_run().await;
        worker.killed_by_itself().await;
        world.check().await;
        if point.ends_with(":1") {
            world.worker_with(&dying).await.killed_by_itself().await;
            world.check().await;
        }
        let _worker = world.worker_with(&[API_KEY]).await;
        counts(&world.closed().await, &[("selected", 20), ("cleaned", 20), ("unknown", 0)]);
        repeated += server.record().requests.len() - server.record().batches.len();
        check(&world, &server).await;
    }
    assert!(repeated > 0, "no batch went again");
    println!("n = {} deaths in a batch, {repeated} requests repeated", POINTS.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_doubt_is_settled_by_a_worker_that_makes_none() {
    let plan = batched("batch-off").customers(10);
    let Some((mut world, server)) = through(plan, Resend, vec![]).await else { return };
    let worker = world.worker_with(&[API_KEY, ("DIGESTD_CRASH_AT", "accepted")]).await;
    world.start_run().await;
    worker.killed_by_itself().await;
    world.edit("provider.batch", 1);
    let _worker = world.worker_with(&[API_KEY]).await;
    counts(&world.closed().await, &[("selected", 10), ("cleaned", 10), ("unknown", 0)]);
    assert!(shared(&server) > 1, "the batch did not go again");
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_while_the_ledger_is_away_are_kept_by_the_workflows_of_all_members() {
    // An answer that takes long enough for the ledger to go meanwhile.
    let server = ApiServer::start(Arc::new(Resend), None, [Act::TakeThenDribble]).await.unwrap();
    let server = Arc::new(server);
    let plan = batched("batch-cut").customers(12).with("worker.concurrency", 12);
    let plan = plan.with("provider.kind", "resend").with("provider.url", server.url());
    let plan = plan.with("provider.timeout", "8s").with("provider.lease", "12s");
    let plan = plan.with("worker.shutdown_grace", "12s");
    let Some((mut world, proxy)) = behind_a_proxy(plan, "batch_cut").await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || {
        let taken = record.record().taken.into_iter();
        taken.map(|taken| Taken { key: taken.key, at: None, body: None }).collect()
    });
    let worker = world.worker_with(&[API_KEY]).await;
    world.start_run().await;
    let taken = server.until(|record| !record.taken.is_empty()).await.unwrap().taken.len();
    proxy.cut();
    until("a ledger that takes no outcome", async || {
        let offers = worker.said().matches("the ledger did not take the outcomes").count();
        (offers >= 4).then_some(())
    })
    .await;
    proxy.heal();
    counts(&world.closed().await, &[("selected", 12), ("cleaned", 12), ("unknown", 0)]);
    for taken in &server.record().taken[..taken] {
        let shown = world.show(&OperationKey::parse(&taken.key).unwrap()).await;
        assert_eq!(shown["attempts"].as_array().unwrap().len(), 1, "{shown:#}");
    }
    println!("n = {taken} outcomes of one batch kept without a ledger");
    check(&world, &server).await;
}

/// Every delivery of a run executed twice at once, without an engine that drives them.
async fn twice_at_once(plan: Plan) {
    const CUSTOMERS: u64 = 30;
    let plan = plan.customers(30).with("provider.batch", 8);
    let Some((world, server)) = through(plan, Resend, vec![]).await else { return };
    let key = Some(Redacted::new(API_KEY.1.to_owned()));
    let settings = ApiSettings { url: Some(server.url()), key, ..ApiSettings::default() };
    let bench = world.bench_with(Resend.adapter(&settings).unwrap()).await;
    let parts = &bench.parts;
    let (campaign, period) = (world.campaign.clone(), PERIOD.parse().unwrap());
    let run = RunStart { campaign, period, tick: None };
    let RunPlan { ledger, rules, .. } = eligibility::open_run(parts, &run).await.unwrap();
    while !eligibility::freeze_page(parts, &run).await.unwrap() {}
    let page =
        EnqueueInput { run: run.clone(), ledger: ledger.clone(), after: 0, until: CUSTOMERS };
    let keys = eligibility::enqueue(parts, &page).await.unwrap().keys;
    let operation = |key: &OperationKey| OperationInput {
        key: key.clone(),
        ledger: ledger.clone(),
        rules: rules.clone(),
        random: 0.5,
    };
    let deliveries = keys.iter().chain(&keys).map(|key| {
        let (parts, client) = (Arc::clone(parts), world.client.clone());
        let operation = operation(key);
        let input = DeliverInput { operation, generation: 1, ordinal: 1, slot: None };
        tokio::spawn(async move { delivery::deliver(&parts, &client, input).await })
    });
    for delivered in join_all(deliveries).await {
        delivered.unwrap().unwrap();
    }
    for key in &keys {
        world.until_state(key, "sent").await;
        cleanup::clean_up(parts, &operation(key)).await.unwrap();
    }
    let (by, reason, request) = (String::new(), String::new(), String::new());
    let watch = WatchInput { run, ledger: ledger.clone(), by, reason, request, noted: 0 };
    assert!(eligibility::watch(parts, &watch).await.unwrap().closed);
    let record = server.record();
    let sizes: Vec<usize> = record
        .requests
        .iter()
        .map(|request| request.json().as_array().map_or(0, Vec::len))
        .collect();
    assert!(sizes.iter().all(|size| (1..=8).contains(size)), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), keys.len(), "somebody was sent twice: {sizes:?}");
    println!("n = {} deliveries, each executed twice at once, in {sizes:?}", keys.len());
    check(&world, &server).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_are_executed_twice_at_once_share_requests_and_go_once_in_sqlite() {
    twice_at_once(batched("batch-at-once")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_are_executed_twice_at_once_share_requests_and_go_once_in_postgres() {
    twice_at_once(batched("batch-at-once-postgres").postgres()).await;
}

/// Two requests a second, and a worker that is killed in the middle of a batch.
async fn at_two_a_second(name: &str, customers: usize, share: usize) {
    let plan = batched(name).customers(customers).with("provider.rate_per_second", 2.0);
    let Some((world, server)) = through(plan, Resend, vec![]).await else { return };
    server.limit(2);
    let begun = Instant::now();
    // The second batch has reached the provider when its worker is gone.
    let worker = world.worker_with(&[API_KEY, ("DIGESTD_CRASH_AT", "accepted:2")]).await;
    world.start_run().await;
    worker.killed_by_itself().await;
    world.check().await;
    let _worker = world.worker_with(&[API_KEY]).await;
    until("everything at rest", async || {
        let open = world.ledger.count("@operations where at_rest = 0").await;
        (open == 0).then_some(())
    })
    .await;
    let n = u64::try_from(customers).unwrap();
    counts(&world.closed().await, &[("selected", n), ("cleaned", n), ("unknown", 0)]);
    let record = server.record();
    println!(
        "{customers} customers took {} requests ({} answered with 429) and {:?}; 0 of n = \
         {customers} got two, so at most {:.4} do",
        record.requests.len(),
        record.throttled,
        begun.elapsed(),
        3.0 / f64::from(u32::try_from(customers).unwrap()),
    );
    let requests = record.requests.len();
    assert!(requests * share <= customers, "{requests} requests");
    check(&world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_customers_at_two_requests_a_second_survive_a_kill() {
    at_two_a_second("batch-hundred", 100, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_thousand_customers_take_a_tenth_of_the_requests_and_survive_a_kill() {
    at_two_a_second("batch-thousand", 1_000, 10).await;
}
