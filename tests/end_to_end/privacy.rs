//! Nothing private in the engine, in logs, or on the worker's HTTP; and bounded payloads and
//! histories.

use crate::end_to_end::world::{Customer, counts, until, world};
use data_encoding::BASE64;
use serde_json::Value;

/// Parts of addresses, names and content that occur nowhere else.
const PRIVATE: [&str; 6] = [
    "zebra.ottokar",
    "quokka+tag",
    "privat.example",
    "Müller-Lüdenscheidt",
    "Xanthippe",
    "Wunderding",
];
/// No payload is larger.
pub(crate) const PAYLOAD_MAX: usize = 10_000;
/// No history has as many events.
const EVENTS_MAX: usize = 4_096;

#[tokio::test(flavor = "multi_thread")]
async fn no_history_log_or_endpoint_shows_an_address_a_name_or_content() {
    let people = [
        ("zebra.ottokar@privat.example", "Ottokar Müller-Lüdenscheidt"),
        ("quokka+tag@privat.example", "Xanthippe"),
        ("zebra.ottokar2@privat.example", "Xanthippe\r\nBcc: quokka+tag@privat.example"),
        ("not an address of zebra.ottokar", "Xanthippe"),
        ("zebra.ottokar3@privat.example", "Müller-Lüdenscheidt 🎈"),
        ("quokka+tag4@privat.example", "Xanthippe Wunderding"),
    ];
    let customers = people.iter().enumerate().map(|(index, (email, name))| Customer {
        id: format!("customer-{index}"),
        email: (*email).to_owned(),
        name: (*name).to_owned(),
        rows: 1,
    });
    let fault = |customer: &str, kind: &str| {
        let mut table = toml::Table::new();
        table.insert("customer".to_owned(), customer.into());
        table.insert("kinds".to_owned(), vec![toml::Value::from(kind)].into());
        toml::Value::Table(table)
    };
    let faults = vec![
        fault("customer-1", "refuse_recipient"),
        fault("customer-4", "accept_then_hang"),
        fault("customer-5", "rate_limit"),
    ];
    let plan = world("privacy").these(customers.collect()).with("sandbox.fault", faults);
    let Some(world) = plan.start().await else { return };
    let worker = world.worker_with(&[("DIGESTD_LOG", "debug")]).await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 6), ("unknown", 1)]);
    let key = world.key("customer-4");

    let executions = until("every workflow in the list", async || {
        let all = world.workflows("").await;
        (all.len() >= 8).then_some(all)
    })
    .await;
    for (id, run) in executions {
        let history = world.history(&id, &run).await;
        assert!(history.len() < EVENTS_MAX, "{id} has {} events", history.len());
        let history = serde_json::to_value(history).unwrap();
        let mut payloads = 0;
        look(&history, &mut |text| is_clean(&id, text), &mut |payload| {
            payloads += 1;
            assert!(payload.len() < PAYLOAD_MAX, "{id} has a payload of {} bytes", payload.len());
            is_clean(&id, &String::from_utf8_lossy(payload));
        });
        assert!(payloads > 0, "no payload of {id} was looked at");
    }
    is_clean("the details", &world.details(&key.to_string()).await.unwrap());
    let http = worker.http().await;
    let (run, operation) = (format!("runs/{}", key.period()), format!("operations/{key}"));
    for path in ["healthz", "readyz", "metrics", "", "unknown", "dead-letters", &run, &operation] {
        let answer = reqwest::get(format!("{http}/{path}")).await.unwrap().text().await.unwrap();
        is_clean(path, &answer);
    }
    is_clean("the log", &world.worker_logs());
    for command in
        ["status", "status --json", &format!("show {key}"), &format!("show {key} --json")]
    {
        let said = world.digestd(command).await;
        is_clean(command, &said.stdout);
        is_clean(command, &said.stderr);
    }
    for customer in 0..people.len() {
        let key = world.key(&format!("customer-{customer}"));
        is_clean("show", &world.show(&key).await.to_string());
    }
    world.check().await;
}

fn is_clean(place: &str, text: &str) {
    for private in PRIVATE {
        assert!(!text.contains(private), "{place} shows {private:?}: {text}");
    }
}

/// Walks through a history: every text, and every payload's bytes.
pub(crate) fn look(value: &Value, text: &mut impl FnMut(&str), payload: &mut impl FnMut(&[u8])) {
    match value {
        Value::String(string) => text(string),
        Value::Array(values) => values.iter().for_each(|value| look(value, text, payload)),
        Value::Object(fields) => {
            if let (Some(Value::String(data)), true) =
                (fields.get("data"), fields.contains_key("metadata"))
            {
                payload(&BASE64.decode(data.as_bytes()).unwrap());
            }
            fields.values().for_each(|value| look(value, text, payload));
        }
        _ => {}
    }
}

#[test]
fn the_search_finds_what_is_hidden_in_a_payload() {
    let data = BASE64.encode(b"{\"to\":\"zebra.ottokar@privat.example\"}");
    let history = serde_json::json!([{"a": {"payloads": [{"metadata": {}, "data": data}]}}]);
    let mut found = Vec::new();
    look(&history, &mut |_| {}, &mut |payload| found.push(payload.to_vec()));
    assert_eq!(found.len(), 1);
    let caught = std::panic::catch_unwind(|| is_clean("here", &String::from_utf8_lossy(&found[0])));
    assert!(caught.is_err());
}
