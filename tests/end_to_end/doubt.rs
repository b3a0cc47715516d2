//! Unknown deliveries: how they arise, how they show, and how they end.

use crate::end_to_end::world::{
    PERIOD, World, counts, failed_tasks, of_mail, payload, until, world,
};
use digest_tests::mail_server::{AfterStoring, MailServer};
use digest_tests::smtp::{Act, At, Script, SmtpServer, Traits};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// One customer whose mail goes to a scripted server.
async fn scripted(name: &str, scripts: Vec<Script>) -> Option<(World, Arc<SmtpServer>)> {
    let server = Arc::new(SmtpServer::start(Traits::default(), scripts).unwrap());
    let mut world = world(name).customers(1).smtp(server.port()).start().await?;
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    Some((world, server))
}

fn after_the_dot(act: Act) -> Script {
    vec![(At::Dot, act)]
}

fn verdict(verdict: &str, attempt: u32) -> serde_json::Value {
    json!({"verdict": verdict, "attempt": attempt, "by": "kim", "reason": "asked the provider"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_in_a_cancelled_run_rests_and_is_not_repeated() {
    let fault = toml::toml! { customer = "customer-0001" kinds = ["accept_then_hang"] times = 20 };
    let plan = world("cancelled-doubt").customers(1).with("sandbox.contract", "replay");
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    let cancel = format!("cancel --period {PERIOD} --reason withdrawn --yes");
    assert_eq!(world.digestd(&cancel).await.code, 0);
    let requests = world.requests().len();
    counts(&world.closed().await, &[("selected", 1), ("unknown", 1), ("sent", 0)]);
    assert!(world.requests().len() <= requests + 1, "it was repeated after the cancellation");
    let decisions = world.ledger.count("@decisions").await;
    assert!(decisions < 60, "{decisions} decisions about one message");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_a_closed_run_shows_as_long_as_it_keeps_something_waiting() {
    let fault = toml::toml! { customer = "customer-0001" kinds = ["hang_before_acceptance"] };
    let plan = world("held-closed").customers(1);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    counts(&world.closed().await, &[("unknown", 1)]);
    let hold = format!("hold --period {PERIOD} --reason prices");
    assert_eq!(world.digestd(&hold).await.code, 0);
    world.reconcile(&key, verdict("not_delivered", 1)).await;
    world.until_state(&key, "retrying").await;
    let status = world.digestd(&format!("status --period {PERIOD}")).await;
    assert_eq!(status.code, 4, "{status:?}");
    assert!(status.stdout.contains("held") && status.stdout.contains("prices"), "{status:?}");
    let shown = world.digestd(&format!("show {key}")).await;
    assert!(shown.stdout.contains("its run is held"), "{shown:?}");
    let resume = format!("resume --period {PERIOD} --reason corrected --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    world.until_state(&key, "cleaned").await;
    world.check().await;
}

/// That an unknown shows wherever somebody might look.
async fn is_visible(world: &World, key: &digest_workflows::operation::OperationKey) {
    let status = world.status().await;
    counts(&status, &[("unknown", 1)]);
    let unknown = world.digestd("unknown --json").await;
    let unknown: serde_json::Value = serde_json::from_str(&unknown.stdout).unwrap();
    assert_eq!(unknown["operations"][0]["key"], key.to_string(), "{unknown:#}");
    let shown = world.show(key).await;
    assert_eq!(shown["state"], "unknown");
    assert!(shown["attempts"][0]["outcome"].is_null(), "{shown:#}");
    let details = world.until_details_say(key, "may or may not have accepted").await;
    assert!(details.contains("digestd resolve"), "{details}");
    until("the state among the search attributes", async || {
        let found = world.workflows("DigestState = 'unknown'").await;
        (found.len() == 1 && found[0].0 == key.to_string()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_mail_server_took_it_is_resolved_by_a_signal() {
    let Some(mail) = MailServer::start() else { return };
    let mail = Arc::new(mail);
    let plan = world("smtp-kill").customers(1).smtp(mail.port());
    let Some(mut world) = plan.start().await else { return };
    let folder = Arc::clone(&mail);
    world.received_by(move || of_mail(&folder.messages()));
    let key = world.key("customer-0001");
    let worker = world.worker_that_dies_at("accepted").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    assert_eq!(world.inbox()[&key.to_string()], 1);

    let _worker = world.worker().await;
    world.until_state(&key, "unknown").await;
    is_visible(&world, &key).await;
    let ends = lease_ends(&world, &key, 0).await;
    world.reconcile(&key, verdict("delivered", 1)).await;
    world.until_state(&key, "cleaned").await;
    let shown = world.show(&key).await;
    let sent = moment(&shown, "sent");
    assert!(sent >= ends, "the verdict was acted on at {sent}, before the lease ended at {ends}");
    assert_eq!(world.inbox()[&key.to_string()], 1);
    counts(&world.closed().await, &[("sent", 1), ("cleaned", 1), ("contradicted", 0)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_before_the_mail_server_took_it_is_sent_once_after_the_verdict() {
    // The first connection's server reads the end of data, and neither stores nor answers.
    let Some((world, server)) = scripted("smtp-lost", vec![after_the_dot(Act::Hang)]).await else {
        return;
    };
    let key = world.key("customer-0001");
    let worker = world.worker().await;
    world.start_run().await;
    server.until(|record| record.ends_of_data == 1).await.unwrap();
    worker.kill();
    let _worker = world.worker().await;
    world.until_state(&key, "unknown").await;
    world.reconcile(&key, verdict("not_delivered", 1)).await;
    world.until_state(&key, "cleaned").await;
    let shown = world.show(&key).await;
    let again: Timestamp = time(&shown["attempts"][1]["handed_over_at"]);
    let settled = lease_ends(&world, &key, 0).await + jiff::SignedDuration::from_secs(1);
    assert!(again >= settled, "sent again at {again}, before {settled}");
    assert_eq!(server.record().stored.len(), 1);
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 2, "{shown:#}");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stores_and_never_answers_leaves_a_visible_unknown() {
    let Some(mail) = MailServer::start_with(AfterStoring::Hang) else { return };
    let mail = Arc::new(mail);
    let plan = world("smtp-silent").customers(1).smtp(mail.port());
    let Some(mut world) = plan.start().await else { return };
    let folder = Arc::clone(&mail);
    world.received_by(move || of_mail(&folder.messages()));
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    is_visible(&world, &key).await;
    // The run rests over it, and nothing has been sent again by then.
    let status = world.closed().await;
    counts(&status, &[("selected", 1), ("unknown", 1), ("missing_count", 0)]);
    assert_eq!(world.inbox()[&key.to_string()], 1);
    let again = world.digestd("run --period 2024-W10 --wait").await;
    assert_eq!(again.code, 3, "{again:?}");
    assert_eq!(world.inbox()[&key.to_string()], 1);
    // A verdict after the run has closed still counts, also on the command line.
    let (key_text, reason) = (key.to_string(), "found in the server's log");
    let line = ["resolve", &key_text, "--delivered", "--reason", reason, "--by", "kim", "--yes"];
    let said = world.digestd_with(&line).await;
    assert_eq!(said.code, 0, "{said:?}");
    world.until_state(&key, "cleaned").await;
    counts(&world.status().await, &[("unknown", 0), ("cleaned", 1)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_while_the_answer_is_still_under_way_loses_to_the_answer() {
    let late = Act::store_then(Act::Late("250 2.0.0 Ok"));
    let Some((world, server)) = scripted("early-verdict", vec![after_the_dot(late)]).await else {
        return;
    };
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    world.reconcile(&key, verdict("not_delivered", 1)).await;
    world.until_details_say(&key, "acted on").await;
    server.release();
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().ends_of_data, 1);
    assert_eq!(world.show(&key).await["attempts"].as_array().unwrap().len(), 1);
    counts(&world.closed().await, &[("cleaned", 1)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_for_an_older_doubt_is_noted_and_ignored() {
    let scripts = vec![after_the_dot(Act::Hang), after_the_dot(Act::store_then(Act::Hang))];
    let Some((world, server)) = scripted("older-verdict", scripts).await else { return };
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    world.reconcile(&key, verdict("not_delivered", 1)).await;
    server.until(|record| record.stored.len() == 1).await.unwrap();
    world.until_state(&key, "unknown").await;
    let shown = world.show(&key).await;
    let first = shown["attempts"][0]["outcome"].as_str().unwrap();
    assert!(first.starts_with("not_sent"), "{shown:#}");

    world.reconcile(&key, verdict("not_delivered", 1)).await;
    world.until_details_say(&key, "does not name the newest attempt").await;
    let shown = world.show(&key).await;
    assert_eq!(shown["state"], "unknown", "{shown:#}");
    assert!(shown["attempts"][1]["outcome"].is_null(), "{shown:#}");
    world.reconcile(&key, verdict("delivered", 2)).await;
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().ends_of_data, 2);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_signals_change_nothing_and_a_correct_one_afterwards_works() {
    let hang = Act::store_then(Act::Hang);
    let Some((world, server)) = scripted("nonsense", vec![after_the_dot(hang)]).await else {
        return;
    };
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    let plain = |data: &str| payload("json/plain", data.as_bytes());
    for payloads in [
        vec![plain("\"nonsense\"")],
        vec![plain("null")],
        vec![plain("[]")],
        vec![plain("{\"verdict\": \"delivered\", \"attempt\": 7}")],
        vec![plain("{ this is not JSON")],
        vec![payload("binary/plain", b"\xff\xfe")],
        vec![payload("binary/null", b"")],
        vec![],
        vec![plain("{}"), plain("{}")],
    ] {
        for name in ["reconcile", "evidence", "hold", "resume"] {
            world.signal_raw(&key.to_string(), name, payloads.clone()).await;
        }
    }
    world.signal_raw(&key.to_string(), "no-such-signal", vec![plain("1")]).await;
    // All before this one were handled, and this one is as well.
    world.reconcile(&key, verdict("delivered", 1)).await;
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().ends_of_data, 1);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_from_anybody_but_the_execution_settles_nothing() {
    let hang = after_the_dot(Act::store_then(Act::Hang));
    let Some((world, server)) = scripted("forged", vec![hang]).await else { return };
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    let failure = json!({"class": "transport", "code": "not sent, they say"});
    let not_sent =
        json!({"answered": {"attempt": 1, "outcome": {"not_sent": failure}, "random": 0.0}});
    for claim in [not_sent.clone(), json!({"event": not_sent, "proof": "0".repeat(64)})] {
        let claim = payload("json/plain", &serde_json::to_vec(&claim).unwrap());
        world.signal_raw(&key.to_string(), "evidence", vec![claim]).await;
    }
    until("a note about it", async || {
        let shown = world.show(&key).await;
        shown["timeline"].to_string().contains("does not come from the execution").then_some(())
    })
    .await;
    // Also not once lease and settle are over, when the run has closed over it.
    counts(&world.closed().await, &[("unknown", 1), ("retrying", 0), ("sent", 0)]);
    assert_eq!(server.record().ends_of_data, 1);
    world.reconcile(&key, verdict("delivered", 1)).await;
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().ends_of_data, 1);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_configuration_fails_no_replay_and_moves_no_doubt() {
    let hang = after_the_dot(Act::store_then(Act::Hang));
    let Some((mut world, server)) = scripted("edited", vec![hang]).await else { return };
    let key = world.key("customer-0001");
    let worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    worker.kill();
    // Other rules, and another provider, which must neither be asked nor sent to.
    let other = SmtpServer::start(Traits::default(), []).unwrap();
    world.edit("provider.url", format!("smtp://127.0.0.1:{}", other.port()));
    world.edit("provider.lease", "30s");
    world.edit("provider.timeout", "2s");
    world.edit("unknown.escalate_after", "60s");
    world.edit("retry.ambiguous.base", "5s");
    world.edit("retry.ambiguous.cap", "9s");
    let _worker = world.worker().await;
    world.reconcile(&key, verdict("delivered", 1)).await;
    world.until_state(&key, "cleaned").await;
    assert_eq!(other.record().connections, 0, "the doubt was taken to another provider");
    assert_eq!(server.record().ends_of_data, 1);
    for (id, run) in world.workflows("").await {
        let history = world.history(&id, &run).await;
        assert_eq!(failed_tasks(&history), Vec::<String>::new(), "{id}");
    }
    world.check().await;
}

/// When the lease of an attempt ends, by its place.
async fn lease_ends(
    world: &World,
    key: &digest_workflows::operation::OperationKey,
    attempt: usize,
) -> Timestamp {
    time(&world.show(key).await["attempts"][attempt]["lease_ends"])
}

fn time(value: &serde_json::Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// When an operation went into a state.
fn moment(shown: &serde_json::Value, state: &str) -> Timestamp {
    let lines = shown["timeline"].as_array().unwrap();
    time(&lines.iter().find(|line| line["to"] == state).unwrap()["at"])
}
