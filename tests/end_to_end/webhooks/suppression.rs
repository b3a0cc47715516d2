//! What a provider tells after a message was sent keeps the next one from being sent.

use super::{SECRETS, WEBHOOK_SECRET, event, post_as};
use crate::end_to_end::world::{Plan, World, counts, through, until, world};
use digest_tests::api_server::{Act, Postmark, Resend, Response, Taken};
use digest_tests::free_port;
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::Value;

impl World {
    async fn suppressed(&self) -> Vec<(String, String)> {
        let said = self.digestd("suppressions --json").await;
        assert_eq!(said.code, 0, "{said:?}");
        let listed: Value = serde_json::from_str(&said.stdout).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let lines = listed["suppressions"].as_array().unwrap().iter();
        lines.map(|line| (text(&line["customer"]), text(&line["reason"]))).collect()
    }

    /// Runs `period` to its end; its status then.
    async fn run_to_its_end(&self, period: &str) -> Value {
        let run = self.digestd(&format!("run --period {period}")).await;
        assert_eq!(run.code, 0, "{run:?}");
        self.until_run(period, "closed").await
    }
}

async fn a_bounce_of_one_week_is_heeded_in_the_next(plan: Plan) {
    let port = free_port().unwrap();
    let plan = plan
        .customers(4)
        // The weeks after have nothing new to tell.
        .with("message.when_empty", "send")
        .with("webhooks.listen", format!("127.0.0.1:{port}"));
    let Some((world, server)) = through(plan, Resend, Vec::new()).await else { return };
    let _worker = world.worker_with(&SECRETS).await;
    counts(&world.run_to_its_end("2024-W10").await, &[("selected", 4), ("cleaned", 4)]);

    let taken = server.record().taken;
    let of = |number: usize| -> &Taken {
        let address = format!("customer{number}@shop.example");
        let is = |taken: &&Taken| String::from_utf8_lossy(&taken.request.body).contains(&address);
        taken.iter().find(is).unwrap()
    };
    let hard = event("email.bounced", of(1), r#"{"type":"Permanent","subType":"General"}"#);
    let soft = event("email.bounced", of(2), r#"{"type":"Transient","subType":"MailboxFull"}"#);
    let complaint = event("email.complained", of(3), "{}");
    let url = format!("http://127.0.0.1:{port}/webhooks/resend");
    for (id, told) in [("e1", hard), ("e2", soft), ("e3", complaint)] {
        let answer = post_as(id, &url, WEBHOOK_SECRET, Timestamp::now(), &told).await;
        assert_eq!(answer, StatusCode::OK);
    }
    until("two suppressed customers", async || (world.suppressed().await.len() == 2).then_some(()))
        .await;
    let expected = [("customer-0001", "hard_bounce"), ("customer-0003", "complaint")];
    let expected = expected.map(|(customer, reason)| (customer.to_owned(), reason.to_owned()));
    assert_eq!(world.suppressed().await, expected);
    let status = world.status().await;
    counts(&status, &[("undelivered", 2), ("newly_suppressed", 2), ("cleaned", 4)]);
    world.check().await;

    let status = world.run_to_its_end("2024-W11").await;
    counts(&status, &[("selected", 4), ("cleaned", 2), ("suppressed", 2), ("dead", 0)]);
    let shown = world.digestd(&format!("show {}:2024-W11:customer-0001", world.campaign)).await;
    assert!(shown.stdout.contains("suppressed: hard bounce"), "{shown:?}");
    let shown = world.digestd(&format!("show {}:2024-W10:customer-0001", world.campaign)).await;
    assert!(shown.stdout.contains("customer_suppressed"), "{shown:?}");

    let forgotten = ["forget", "--customer", "customer-0003", "--reason", "erasure"];
    let forgotten = world.digestd_with(&forgotten).await;
    assert!(forgotten.stdout.contains("stays suppressed"), "{forgotten:?}");
    let remove =
        ["suppressions", "remove", "--customer", "customer-0001", "--reason", "new address"];
    let removed = world.digestd_with(&remove).await;
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(world.digestd_with(&remove).await.code, 3);
    assert_eq!(world.suppressed().await, expected[1..]);
    let listed = world.digestd("suppressions").await;
    assert!(
        listed.stdout.contains("customer-0003") && listed.stdout.contains("complaint"),
        "{listed:?}"
    );
    let status = world.run_to_its_end("2024-W12").await;
    counts(&status, &[("selected", 4), ("cleaned", 3), ("suppressed", 1), ("dead", 0)]);
    // The provider never saw what was not to be sent: 4, 2 and 3 messages.
    assert_eq!(server.record().requests.len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bounce_of_one_week_is_heeded_in_the_next_on_sqlite() {
    a_bounce_of_one_week_is_heeded_in_the_next(world("bounced")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bounce_of_one_week_is_heeded_in_the_next_on_postgres() {
    a_bounce_of_one_week_is_heeded_in_the_next(world("bounced-postgres").postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_whom_the_provider_does_not_write_to_is_skipped_and_holds_nothing() {
    let inactive = r#"{"ErrorCode":406,"Message":"You tried to send to a recipient that has been marked as inactive."}"#;
    let script = vec![Act::Say(Response::new(422, inactive))];
    let plan = world("inactive").customers(3);
    let Some((world, server)) = through(plan, Postmark, script).await else { return };
    let _worker = world.worker_with(&[("DIGESTD_PROVIDER_API_KEY", "server-token")]).await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 3), ("cleaned", 2), ("suppressed", 1), ("dead", 0)]);
    assert_eq!(status["held_because"], Value::Null, "{status:#}");
    assert_eq!(server.record().requests.len(), 3);
    world.check().await;
}
