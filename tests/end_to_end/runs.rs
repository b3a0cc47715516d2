//! Runs and who is in them.

use crate::end_to_end::world::{Customer, PERIOD, counts, of_mail, until, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digestd::assemble;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use temporalio_client::WorkflowStartOptions;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads, WorkflowType};
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionRequest;

#[tokio::test(flavor = "multi_thread")]
async fn one_rejected_of_two_is_one_dead_letter_and_one_message() {
    let fault = toml::toml! { customer = "customer-0002" kinds = ["reject"] };
    let plan = world("one-rejected").customers(2);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 4, "{run:?}");
    counts(&world.status().await, &[("selected", 2), ("cleaned", 1), ("dead", 1)]);
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert_eq!(world.requests().len(), 2);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_mail_is_slowed_down_and_all_sent() {
    // Every connection throttles every other message, after the dot or already at MAIL.
    let throttled = Act::Say("454 4.7.0 Throttling failure: Maximum sending rate exceeded.");
    let half = |at: At| vec![vec![(at, throttled.clone()), (at, Act::Go)]; 20].concat();
    let scripts: Vec<_> =
        (0..20).map(|n| half(if n % 2 == 0 { At::Dot } else { At::Mail })).collect();
    let server = Arc::new(SmtpServer::start(Traits::default(), scripts).unwrap());
    let plan = world("throttled").customers(10).smtp(server.port());
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    counts(&world.status().await, &[("selected", 10), ("cleaned", 10), ("dead", 0)]);
    let slowed = world.ledger.count("@attempts where class = 'rate_limited'").await;
    assert!(slowed >= 10, "only {slowed} attempts were told to slow down");
    assert_eq!(world.inbox().len(), 10);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_only_ineligible_customers_are_not_the_end() {
    let customers = (1..=25)
        .map(|number| {
            let customer = Customer::new(format!("customer-{number:04}"), number);
            Customer { rows: u32::from(number > 20), ..customer }
        })
        .collect();
    let plan = world("ineligible").these(customers).with("dispatch.page_size", 5);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 25), ("suppressed", 20), ("cleaned", 5)]);
    assert_eq!(world.requests().len(), 5);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_customer_ids_keep_apart_or_are_faults() {
    let long = "x".repeat(200);
    let usable = [
        "a:b", "a%3Ab", "a b", "a/b", "a\\b", "100%", "grüße", "日本", "A", "a", "'; drop", "a.b",
        "-", "🎈", &long,
    ];
    let faults = ["", "ann@shop.example", &"y".repeat(300)];
    let customers =
        usable.iter().chain(&faults).zip(1..).map(|(id, number)| Customer::new(*id, number));
    let Some(world) = world("odd-ids").these(customers.collect()).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    let count = |list: &[&str]| u64::try_from(list.len()).unwrap();
    counts(
        &status,
        &[("selected", count(&usable)), ("cleaned", count(&usable)), ("unkeyed", count(&faults))],
    );
    let keys: BTreeSet<String> = usable.iter().map(|id| world.key(id).to_string()).collect();
    assert_eq!(keys.len(), usable.len(), "two customers have one key");
    assert_eq!(world.inbox().into_keys().collect::<BTreeSet<_>>(), keys);
    for id in usable {
        let key = world.key(id);
        assert_eq!(key.customer_id(), id);
        let shown = world.digestd_with(&["show", &key.to_string(), "--json"]).await;
        assert_eq!(shown.code, 0, "{shown:?}");
        let by_id = world.digestd_with(&["show", "--customer", id, "--json"]).await;
        assert!(by_id.stdout.contains(&key.to_string().replace('\\', "\\\\")), "{by_id:?}");
    }
    // Of the rows of those that could not be selected nothing was removed.
    assert_eq!(world.shop.count("digest_items").await, 2 * count(&faults));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn integer_ids_are_selected_once_over_many_pages() {
    let plan = world("integers").bigint().customers(120).with("dispatch.page_size", 50);
    let Some(world) = plan.start().await else { return };
    // Ten comes before nine as text, and 2^62 is beyond what a float can tell apart.
    for id in ["4611686018427387904", "4611686018427387905", "-7", "null"] {
        world
            .shop
            .execute(&format!("insert into customers values ({id}, 'e@shop.example', 'E', 1)"))
            .await;
        let when = "'2024-02-28 12:00:00'";
        world
            .shop
            .execute(&format!("insert into digest_items values ({id}, 'T', '1', {when})"))
            .await;
    }
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 123), ("cleaned", 123), ("unkeyed", 1)]);
    assert_eq!(world.inbox().len(), 123);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_in_mariadb_are_sent_to_once_whatever_their_ids_collation() {
    // The shop's collation calls both spellings of an id equal; the edges of pages fall between them.
    let ids = (1..=60).flat_map(|n| [format!("customer-{n:04}"), format!("CUSTOMER-{n:04}")]);
    let customers = ids.enumerate().map(|(n, id)| Customer::new(id, n)).collect();
    let plan = world("mariadb").mariadb().these(customers).with("dispatch.page_size", 25);
    let Some(world) = plan.start().await else { return };
    let checked = world.digestd("check").await;
    assert!(checked.stdout.contains("would select 120 customers now"), "{checked:?}");
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 120), ("cleaned", 120), ("unkeyed", 0)]);
    let inbox = world.inbox();
    assert_eq!(inbox.len(), 120);
    assert_eq!(world.shop.count("digest_items").await, 0);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_workflow_that_exists_already_counts_as_enqueued() {
    let Some(world) = world("exists").customers(3).start().await else { return };
    let (config, secrets) = world.loaded();
    let ledger = assemble::ledger(&config, &secrets).await.unwrap();
    let key = world.key("customer-0002");
    let input = CustomerInput {
        key: key.clone(),
        ledger: ledger.identity().clone(),
        rules: config.rules(),
    };
    let options = WorkflowStartOptions::new(world.campaign.clone(), key.to_string())
        .search_attributes(attributes::of_operation(&key))
        .build();
    world.client.start_workflow(CustomerDigest::run, input, options).await.unwrap();
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 3), ("cleaned", 3)]);
    let executions = world.workflows("WorkflowType = 'CustomerDigest'").await;
    assert_eq!(executions.len(), 3, "{executions:?}");
    world.check().await;
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_input_that_cannot_be_decoded_stops_nobody_else() {
    let Some(world) = world("undecodable").customers(4).start().await else { return };
    let _worker = world.worker().await;
    let key = world.key("customer-0003").to_string();
    let nonsense = Payload {
        metadata: HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]),
        data: b"{\"key\": 7}".to_vec(),
        ..Payload::default()
    };
    let campaign = Payload {
        metadata: HashMap::from([
            ("encoding".to_owned(), b"json/plain".to_vec()),
            ("type".to_owned(), b"Keyword".to_vec()),
        ]),
        data: format!("\"{}\"", world.campaign).into_bytes(),
        ..Payload::default()
    };
    let start = StartWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        workflow_id: key.clone(),
        workflow_type: Some(WorkflowType { name: "CustomerDigest".to_owned() }),
        task_queue: Some(TaskQueue { name: world.campaign.clone(), ..TaskQueue::default() }),
        input: Some(Payloads { payloads: vec![nonsense] }),
        request_id: "nonsense".to_owned(),
        search_attributes: Some(
            temporalio_common::protos::temporal::api::common::v1::SearchAttributes {
                indexed_fields: HashMap::from([("DigestCampaign".to_owned(), campaign)]),
            },
        ),
        ..StartWorkflowExecutionRequest::default()
    };
    WorkflowService::start_workflow_execution(&mut world.client.clone(), start.into_request())
        .await
        .unwrap();
    world.start_run().await;
    until("the others cleaned", async || {
        let cleaned = world.operations().await.into_values().filter(|state| state == "cleaned");
        (cleaned.count() == 3).then_some(())
    })
    .await;
    // The one is visible: it is missing from the run, which can't close over it.
    let status = world.status().await;
    assert_eq!(status["missing"], serde_json::json!([key]), "{status:#}");
    assert_ne!(status["state"], "closed");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_of_nobody_is_questioned_and_closes_when_it_is_meant() {
    let Some(world) = world("nobody").customers(0).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let asked = until("a question", async || {
        let status = world.digestd(&format!("status --period {PERIOD} --json")).await;
        let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        (status["state"] == "held").then_some(status)
    })
    .await;
    assert!(asked["held_because"].as_str().unwrap().contains("empty"), "{asked:#}");
    let run = digest_workflows::run_id(&world.campaign, PERIOD.parse().unwrap());
    until("a run that says so", async || {
        world.details(&run).await.filter(|details| details.contains("the selection is empty"))
    })
    .await;
    let resume = format!("resume --period {PERIOD} --reason meant --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("selected", 0), ("missing_count", 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_that_has_shrunk_is_questioned_whatever_was_resumed_before() {
    let plan = world("shrunk").customers(5).with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 5), ("cleaned", 5)]);
    world.shop.execute("update customers set digest_opt_in = 0 where id > 'customer-0002'").await;
    let next = "2024-W11";
    let hold = format!("hold --period {next} --reason prices");
    assert_eq!(world.digestd(&hold).await.code, 0);
    let resume = format!("resume --period {next} --reason corrected --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    assert_eq!(world.digestd(&format!("run --period {next}")).await.code, 0);
    let asked = until("a question", async || {
        let status = world.status().await;
        (status["period"] == next && status["state"] == "held").then_some(status)
    })
    .await;
    assert!(asked["held_because"].as_str().unwrap().contains("under half of the 5"), "{asked:#}");
    counts(&asked, &[("selected", 2), ("sent", 0)]);
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("selected", 2), ("cleaned", 2)]);
    world.check().await;
}
