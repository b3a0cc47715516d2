//! A defect that panics for one customer.

use crate::end_to_end::world::{until, world};
use digest_activities::message::FrozenMessage;
use digest_activities::provider::{Found, Provider, Ready};
use digest_tests::histories::private;
use digest_workflows::operation::{Contract, Failure, OperationKey, ProviderRef};
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::sync::Arc;
use temporalio_common::protos::temporal::api::history::v1::History;

/// An adapter with a defect: it panics for one key.
pub(super) struct PanicsFor(pub(super) OperationKey, pub(super) Arc<dyn Provider>);

impl Provider for PanicsFor {
    fn provider_ref(&self) -> ProviderRef {
        self.1.provider_ref()
    }

    fn contract(&self) -> Contract {
        self.1.contract()
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        // With a message that must not get anywhere.
        assert_ne!(*key, self.0, "a planted defect for {}", message.sender);
        self.1.prepare(key, message)
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        message: Option<&'a FrozenMessage>,
        since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        self.1.look_up(key, message, since)
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        self.1.check()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operation_that_panics_stops_nobody_else_and_is_seen() {
    let Some(world) = world("panics").customers(4).start().await else { return };
    let key = world.key("customer-0003");
    let broken = key.clone();
    let worker = world.worker_within(move |provider| Arc::new(PanicsFor(broken, provider)));
    world.start_run().await;
    until("the others cleaned", async || {
        let cleaned = world.operations().await.into_values().filter(|state| state == "cleaned");
        (cleaned.count() == 3).then_some(())
    })
    .await;
    let details = world.until_details_say(&key, "did not answer").await;
    assert!(!details.contains("shop.example"), "{details}");
    let status = world.status().await;
    assert_eq!(status["missing"], serde_json::json!([key.to_string()]), "{status:#}");
    assert_ne!(status["state"], "closed");
    let (id, run) = {
        let all = world.workflows("WorkflowType = 'CustomerDigest'").await;
        all.into_iter().find(|(id, _)| *id == key.to_string()).unwrap()
    };
    let events = world.history(&id, &run).await;
    assert_eq!(private(&History { events }).unwrap(), Vec::<String>::new());
    worker.stop();
    // With the defect mended, it follows.
    let _worker = world.worker().await;
    let status = world.closed().await;
    assert_eq!(status["cleaned"], 4, "{status:#}");
    world.check().await;
}
