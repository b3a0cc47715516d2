//! A run in which nothing goes wrong, and what it costs.

use crate::end_to_end::measure;
use crate::end_to_end::world::{Cost, PERIOD, cost, counts, of_mail, until, world};
use digest_tests::smtp::{Authority, SmtpServer, TlsMode, Traits};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_cleans_everybody_at_the_price_of_an_empty_child() {
    let Some(world) = world("happy").customers(20).start().await else { return };
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let status = world.status().await;
    counts(&status, &[("selected", 20), ("sent", 20), ("cleaned", 20), ("missing_count", 0)]);
    assert_eq!(world.inbox().len(), 20);
    world.check().await;
    assert_eq!(world.ledger.count("@messages").await, 0, "a message is kept after its cleanup");
    assert_eq!(world.ledger.count("@digest_rows").await, 0, "rows are kept after the cleanup");
    assert_eq!(world.shop.count("digest_items").await, 0, "the shop's rows are not removed");

    let mut ours = Vec::new();
    for key in world.operations().await.keys() {
        ours.push(cost(&world.client, key).await);
    }
    let empty = measure::empty_children(&world, 20).await;
    let (ours, empty) = (middle(ours), middle(empty));
    println!("one operation: {ours:?}; an empty child: {empty:?}");
    assert!(ours.events <= 7, "{ours:?}");
    assert_eq!(ours.transitions, empty.transitions, "an operation costs more than an empty child");
    let unusual = world.workflows("DigestState != 'active'").await;
    assert!(unusual.is_empty(), "off the happy path: {unusual:?}");
}

/// A child's first task is a transition of its own, after its parent has noted the start. What a
/// client starts, as the sweep does, pays one less.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_started_by_a_client_is_one_workflow_task() {
    let Some(world) = world("by-client").customers(9).start().await else { return };
    let worker = world.worker_that_dies_at("page-enqueued").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    // The run and its page, so that only the sweep can start the customers' workflows.
    let open = until("the run and its page in the list", async || {
        let open = world.workflows("ExecutionStatus = 'Running'").await;
        (open.len() == 2).then_some(open)
    })
    .await;
    for (id, _) in open {
        world.terminate(&id).await;
    }
    world.half_a_minute_passes().await;
    let _worker = world.worker().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 9), ("cleaned", 9), ("missing_count", 0)]);
    let mut costs = Vec::new();
    for key in world.operations().await.keys() {
        costs.push(cost(&world.client, key).await);
    }
    let cost = middle(costs);
    println!("one operation started by a client: {cost:?}");
    assert!(cost.events <= 7 && cost.transitions <= 3, "{cost:?}");
    world.check().await;
}

/// Through STARTTLS and AUTH, on a server whose authority the configuration names.
#[tokio::test(flavor = "multi_thread")]
async fn mail_goes_out_over_starttls_signed_in() {
    let authority = Arc::new(Authority::new().unwrap());
    let traits = Traits {
        tls: Some((TlsMode::StartTls, Arc::clone(&authority))),
        account: Some(("digest", "correct horse")),
        ..Traits::default()
    };
    let server = Arc::new(SmtpServer::start(traits, []).unwrap());
    let plan = world("starttls").customers(5).smtp(server.port());
    let plan = plan.with("provider.url", format!("smtp://localhost:{}", server.port()));
    let plan = plan.with("provider.ca_file", authority.file().display().to_string());
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let account =
        [("DIGESTD_PROVIDER_USERNAME", "digest"), ("DIGESTD_PROVIDER_PASSWORD", "correct horse")];
    let _worker = world.worker_with(&account).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 5), ("cleaned", 5)]);
    let said = server.record().commands;
    let mut connections: Vec<usize> = said.iter().map(|(connection, _)| *connection).collect();
    connections.dedup();
    for connection in connections {
        let mut lines = said.iter().filter(|(number, _)| *number == connection).map(|(_, l)| l);
        let mut position = |verb: &str| lines.position(|line| line.starts_with(verb));
        let (tls, auth, mail) = (position("STARTTLS"), position("AUTH"), position("MAIL"));
        assert!(tls.is_some() && auth.is_some() && mail.is_some(), "{said:?}");
    }
    world.check().await;
}

/// The cost in the middle: on a busy machine a task may be late and cost one more.
fn middle(mut costs: Vec<Cost>) -> Cost {
    costs.sort_unstable_by_key(|cost| (cost.transitions, cost.events));
    costs[costs.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_says_that_it_already_ran_and_sends_nothing() {
    let Some(world) = world("again").customers(3).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    let before = world.requests().len();
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert!(again.stderr.contains("already ran"), "{again:?}");
    assert_eq!(world.requests().len(), before);
    world.check().await;
}
