//! One key, one message: every attempt sends the same bytes, whatever was edited meanwhile, and other
//! bytes are refused.

use crate::end_to_end::world::{Bench, PERIOD, World, counts, until, world};
use digest_activities::message::{FrozenMessage, RenderInput, Rendered};
use digest_activities::{delivery, eligibility};
use digest_workflows::activities::{DeliverInput, OperationInput, Progress, RunPlan, RunStart};
use digest_workflows::operation::{OperationKey, State};
use digestd::assemble;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The customers of a world, each with these faults in a row.
fn faults(customers: usize, kinds: &[&str]) -> Vec<toml::Value> {
    (1..=customers)
        .map(|number| {
            let kinds: Vec<toml::Value> = kinds.iter().map(|kind| (*kind).into()).collect();
            let mut fault = toml::Table::new();
            fault.insert("customer".to_owned(), format!("customer-{number:04}").into());
            fault.insert("kinds".to_owned(), kinds.into());
            toml::Value::Table(fault)
        })
        .collect()
}

/// Edits everything that a message is made of.
async fn edit_everything(world: &mut World) {
    world.edit("message.from", "Other <other@shop.example>");
    world.edit("message.unsubscribe_url", "https://other.example/u/{{ unsubscribe_token }}");
    for (name, text) in [("subject.txt", "Another subject"), ("digest.txt", "Another text")] {
        std::fs::write(world.folder().join(name), text).unwrap();
    }
    world.shop.execute("update customers set email = 'other' || email, first_name = 'Other'").await;
    world.shop.execute("update digest_items set title = 'Another thing', price = '0.01'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_sends_the_same_key_and_bytes_over_edits_and_a_restart() {
    let kinds = ["accept_then_reset", "rate_limit", "server_error", "overload"];
    let plan = world("same-bytes")
        .customers(4)
        .with("sandbox.contract", "replay")
        .with("sandbox.fault", faults(4, &kinds));
    let Some(mut world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    until("two attempts for everybody", async || {
        let second = world.requests().iter().filter(|request| request.nth == 2).count();
        (second == 4).then_some(())
    })
    .await;
    worker.kill();
    edit_everything(&mut world).await;
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("selected", 4), ("cleaned", 4), ("unknown", 0)]);
    let mut bodies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in world.requests() {
        bodies.entry(request.key).or_default().push(request.body_hash);
    }
    assert_eq!(bodies.len(), 4);
    for (key, bodies) in bodies {
        assert!(bodies.len() >= 5, "{key} had only {} attempts", bodies.len());
        let distinct: BTreeSet<_> = bodies.iter().collect();
        assert_eq!(distinct.len(), 1, "{key} was sent with different bytes");
    }
    world.check().await;
}

/// A run whose messages were taken and the answers lost, driven by the test.
struct Driven {
    bench: Bench,
    plan: RunPlan,
    client: temporalio_client::Client,
}

impl Driven {
    async fn start(world: &World) -> Self {
        let bench = world.bench().await;
        let period = PERIOD.parse().unwrap();
        let run = RunStart { campaign: world.campaign.clone(), period, tick: None };
        let plan = eligibility::open_run(&bench.parts, &run).await.unwrap();
        while !eligibility::freeze_page(&bench.parts, &run).await.unwrap() {}
        Self { bench, plan, client: world.client.clone() }
    }

    async fn deliver(&self, key: &OperationKey, ordinal: u32) -> Progress {
        let operation = OperationInput {
            key: key.clone(),
            ledger: self.plan.ledger.clone(),
            rules: self.plan.rules.clone(),
            random: 0.5,
        };
        let input = DeliverInput { operation, generation: 1, ordinal, slot: None };
        delivery::deliver(&Arc::clone(&self.bench.parts), &self.client, input).await.unwrap()
    }
}

/// What one case changes in the frozen customer, and in the configuration.
type Change = (&'static str, fn(&mut World, &mut Content));

/// What a message is rendered from.
struct Content {
    customer: serde_json::Map<String, Value>,
    rows: Vec<Value>,
}

fn write(world: &World, name: &str, text: &str) {
    std::fs::write(world.folder().join(name), text).unwrap();
}

const CHANGES: [Change; 9] = [
    ("address", |_, content| drop(content.customer.insert("address".into(), "b@x.example".into()))),
    ("name", |_, content| drop(content.customer.insert("first_name".into(), "Other".into()))),
    ("row", |_, content| content.rows[0]["title"] = "Another thing".into()),
    ("row removed", |_, content| drop(content.rows.pop())),
    ("from", |world, _| world.edit("message.from", "Shop <other@shop.example>")),
    ("subject", |world, _| write(world, "subject.txt", "Another subject")),
    ("text", |world, _| write(world, "digest.txt", "Another text for {{ first_name }}\n")),
    ("html", |world, _| {
        write(world, "digest.html", "<p>{{ first_name }}</p>");
        world.edit("message.html", "digest.html");
    }),
    ("unsubscribe url", |world, _| {
        world.edit("message.unsubscribe_url", "https://shop.example/v/{{ unsubscribe_token }}");
    }),
];

/// Renders the message of `key` with one thing changed, and puts it in the place of the frozen one.
async fn replace(world: &mut World, driven: &Driven, key: &OperationKey, change: &Change) {
    let ledger = &driven.bench.parts.ledger;
    let frozen = ledger.frozen_data(key).await.unwrap().unwrap();
    let mut content = Content { customer: frozen.customer, rows: frozen.rows };
    (change.1)(world, &mut content);
    let (config, secrets) = world.loaded();
    let run = ledger.run(key.campaign(), key.period()).await.unwrap().unwrap();
    let input = RenderInput {
        key,
        customer: &content.customer,
        rows: &content.rows,
        selected_at: run.selected_at.unwrap(),
    };
    let rendered = assemble::templates(&config, &secrets).unwrap().render(&input);
    let Ok(Rendered::Message(other)) = rendered else { panic!("{}: {rendered:?}", change.0) };
    let stored: FrozenMessage = ledger.message(key).await.unwrap().unwrap();
    assert_ne!(stored.content_hash, other.content_hash, "{} does not show", change.0);
    world.ledger.execute(&format!("delete from @messages where key = '{key}'")).await;
    ledger.store_message(key, &other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_content_under_a_key_in_doubt_is_refused_and_never_sent() {
    let plan = world("other-content")
        .customers(CHANGES.len())
        .with("sandbox.contract", "replay")
        .with("sandbox.fault", faults(CHANGES.len(), &["accept_then_reset"]));
    let Some(mut world) = plan.start().await else { return };
    let driven = Driven::start(&world).await;
    let mut keys = Vec::new();
    for number in 1..=CHANGES.len() {
        let key = world.key(&format!("customer-{number:04}"));
        let progress = driven.deliver(&key, 1).await;
        assert_eq!(progress.operation.state, State::Unknown);
        keys.push(key);
    }
    let files = ["digestd.toml", "subject.txt", "digest.txt"]
        .map(|name| (name, std::fs::read_to_string(world.folder().join(name)).unwrap()));
    for (key, change) in keys.iter().zip(&CHANGES) {
        replace(&mut world, &driven, key, change).await;
        for (name, text) in &files {
            write(&world, name, text);
        }
        let refused = until(&format!("a refusal of another {}", change.0), async || {
            let progress = driven.deliver(key, 2).await;
            progress.operation.replay_over.then_some(progress)
        })
        .await;
        assert_eq!(refused.operation.state, State::Unknown, "{}", change.0);
        assert_eq!(refused.operation.attempts, 1, "{}", change.0);
        let said = world.show(key).await["timeline"].to_string();
        assert!(said.contains("replay_over"), "{}: {said}", change.0);
    }
    assert_eq!(world.requests().len(), CHANGES.len(), "other content was handed over");
    println!("n = {} fields, 0 sends of other content", CHANGES.len());
    world.check().await;
    driven.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_replay_whose_window_is_over_stays_unknown_and_is_never_sent() {
    // The window is short; the margin and the lease within it.
    let contract = toml::toml! {
        replay = { returns_original = { window = "12s", margin = "2s" } }
        lookup = "none"
        events = false
    };
    let plan = world("quota")
        .customers(1)
        .with("sandbox.contract", toml::Value::Table(contract))
        .with("sandbox.fault", faults(1, &["accept_then_reset", "configuration"]))
        .with("unknown.escalate_after", "6s");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    // The replay is refused for the quota, which holds the run and proves nothing about the first.
    let held = world.until_status("a hold", |status| status["state"] == "held").await;
    counts(&held, &[("unknown", 1), ("retrying", 0), ("dead", 0)]);
    assert_eq!(world.requests().len(), 2);
    let first = world.requests()[0].at;
    let over = first + jiff::SignedDuration::from_secs(13);
    until("the end of the window", async || (jiff::Timestamp::now() > over).then_some(())).await;
    let resume = format!("resume --period {PERIOD} --reason paid --yes");
    let resumed = world.digestd(&resume).await;
    assert_eq!(resumed.code, 0, "{resumed:?}");
    counts(&world.closed().await, &[("unknown", 1), ("sent", 0), ("missing_count", 0)]);
    assert_eq!(world.requests().len(), 2, "it was sent outside the window");
    // There were two hand-overs, so the verdict names the newest.
    let said = "--attempt 2 --delivered --reason asked --by kim --yes";
    let resolved = world.digestd(&format!("resolve {key} {said}")).await;
    assert_eq!(resolved.code, 0, "{resolved:?}");
    world.until_state(&key, "cleaned").await;
    assert_eq!(world.requests().len(), 2);
    world.check().await;
}
