//! A deployment of another configuration, by a worker that remembers nothing, while operations wait.

use crate::end_to_end::histories::replayed;
use crate::end_to_end::world::{
    PERIOD, World, counts, failed_tasks, of_mail, of_sandbox, until, world,
};
use digest_tests::smtp::{SmtpServer, Traits};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digest_workflows::operation::OperationKey;
use digest_workflows::run::{DigestRun, RunInput};
use digest_workflows::run_id;
use digestd::assemble;
use serde_json::json;
use std::sync::Arc;
use temporalio_client::{WorkflowGetResultOptions, WorkflowIdReusePolicy, WorkflowStartOptions};
use temporalio_common::protos::temporal::api::history::v1::History;

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_goes_on_under_another_configuration_and_old_keys_still_block() {
    let [waits, doubted, refused] = ["customer-0001", "customer-0002", "customer-0003"];
    let fault = |customer: &str, kind: &str| {
        let mut table = toml::Table::new();
        table.insert("customer".to_owned(), customer.into());
        table.insert("kinds".to_owned(), vec![toml::Value::from(kind)].into());
        toml::Value::Table(table)
    };
    let faults = vec![
        fault(waits, "overload"),
        fault(doubted, "accept_then_hang"),
        fault(refused, "configuration"),
    ];
    let plan = world("upgrade").customers(5).with("sandbox.fault", faults);
    // The doubt could be repeated in ten minutes, if its provider were still there.
    let plan = plan.with("sandbox.contract", "replay");
    let plan = plan.with("retry.ambiguous.base", "10m").with("retry.ambiguous.cap", "10m");
    // The first is refused for a while before the third one's refusal holds the run.
    let plan = plan.with("dispatch.page_size", 1).with("dispatch.in_flight", 2);
    let plan = plan.with("retry.overloaded.base", "5s").with("retry.overloaded.cap", "5s");
    let Some(mut world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    world.until_state(&world.key(waits), "retrying").await;
    world.until_state(&world.key(doubted), "unknown").await;
    world.until_details_say(&world.key(refused), "digestd resume").await;
    worker.kill();

    // Another provider, and every rule another.
    let server = Arc::new(SmtpServer::start(Traits::default(), []).unwrap());
    world.edit("provider.kind", "smtp");
    world.edit("provider.url", format!("smtp://127.0.0.1:{}", server.port()));
    world.edit("provider.rate_per_second", 50.0);
    world.edit("provider.timeout", "2s");
    world.edit("provider.lease", "6s");
    world.edit("provider.settle", "2s");
    world.edit("unknown.escalate_after", "30s");
    world.edit("unknown.lookup_every", "3s");
    for class in ["transport", "overloaded", "rate_limited", "ambiguous", "cleanup"] {
        world.edit(&format!("retry.{class}.base"), "100ms");
        world.edit(&format!("retry.{class}.cap"), "300ms");
        world.edit(&format!("retry.{class}.max_attempts"), 3);
    }
    world.edit("dispatch.page_size", 2);
    let (log, record) = (world.folder().join("sandbox.log"), Arc::clone(&server));
    world.received_by(move || {
        let mut taken = of_sandbox(&log);
        taken.extend(of_mail(&record.record().stored));
        taken
    });
    let _worker = world.worker().await;
    let resume = format!("resume --period {PERIOD} --reason corrected --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    for customer in [waits, refused, "customer-0004", "customer-0005"] {
        world.until_state(&world.key(customer), "cleaned").await;
    }
    // The doubt stays with its own provider, which is gone: a person is left.
    let doubt = world.key(doubted);
    let closed = world.closed().await;
    counts(&closed, &[("selected", 5), ("cleaned", 4), ("unknown", 1), ("missing_count", 0)]);
    assert!(of_mail(&server.record().stored).iter().all(|mail| mail.key != doubt.to_string()));
    assert_eq!(world.inbox()[&doubt.to_string()], 1);
    world.check().await;
    started_again_sends_nothing(&world, &server).await;

    let attempt = world.show(&doubt).await["attempts"].as_array().unwrap().len();
    world.reconcile(&doubt, json!({"verdict": "delivered", "attempt": attempt})).await;
    world.until_state(&doubt, "cleaned").await;
    started_again_sends_nothing(&world, &server).await;
    assert_eq!(world.inbox().into_values().max(), Some(1));
    world.check().await;
    no_task_failed(&world).await;
}

/// Starts the run and every operation again in every way there is; no provider may see any of it.
async fn started_again_sends_nothing(world: &World, server: &SmtpServer) {
    // A connection that was kept open may be given up meanwhile.
    let commands = || server.record().commands.iter().filter(|(_, said)| said != "QUIT").count();
    let seen = || (world.requests().len(), commands());
    let before = seen();
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    let options = |id: String| {
        WorkflowStartOptions::new(world.campaign.clone(), id)
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
    };
    let period = PERIOD.parse().unwrap();
    let start = RunStart { campaign: world.campaign.clone(), period, tick: None };
    let attributes = attributes::of_run(&world.campaign, period);
    let options_of_run =
        options(run_id(&world.campaign, period)).search_attributes(attributes).build();
    let run = RunInput::new(start);
    let run = world.client.start_workflow(DigestRun::run, run, options_of_run).await.unwrap();
    let result = run.get_result(WorkflowGetResultOptions::default()).await.unwrap();
    assert!(!result.closed_here, "{result:?}");

    let (config, secrets) = world.loaded();
    let ledger = assemble::ledger(&config, &secrets).await.unwrap();
    for (key, state) in world.operations().await {
        let key = OperationKey::parse(&key).unwrap();
        let (identity, rules) = (ledger.identity().clone(), config.rules());
        let input = CustomerInput { key: key.clone(), ledger: identity, rules };
        let options =
            options(key.to_string()).search_attributes(attributes::of_operation(&key)).build();
        let started = world.client.start_workflow(CustomerDigest::run, input, options).await;
        match (state.as_str(), started) {
            ("unknown", started) => assert!(started.is_err(), "the doubt had no workflow"),
            (_, started) => {
                let started = started.unwrap();
                let result = started.get_result(WorkflowGetResultOptions::default()).await.unwrap();
                assert_eq!(result.state.name(), state);
            }
        }
    }
    ledger.close().await;
    assert_eq!(seen(), before, "something was sent again");
}

/// No worker failed a task, and what they left behind replays.
async fn no_task_failed(world: &World) {
    let executions = until("every workflow in the list", async || {
        let all = world.workflows("").await;
        (all.len() > 15).then_some(all)
    })
    .await;
    for (id, run) in executions {
        let events = world.history(&id, &run).await;
        assert_eq!(failed_tasks(&events), Vec::<String>::new(), "{id}");
        assert_eq!(replayed(&History { events }).await, None, "{id}");
    }
}
