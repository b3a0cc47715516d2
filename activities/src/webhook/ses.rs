//! The events of Amazon SES, as Amazon SNS brings them over HTTPS
//! (<https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html>): a
//! configuration set publishes them to a topic, to which this webhook is subscribed. The operation is
//! in the message's tag `operation_key`, by its alias.
//!
//! | event | means |
//! | --- | --- |
//! | `Send`, `Delivery`, `DeliveryDelay`, `Open`, `Click` | accepted and tried |
//! | `Subscription` | accepted and tried; from everything: an opt-out |
//! | `Complaint` | accepted and tried; a complaint |
//! | `Bounce` of type `Permanent` | accepted and tried, and given up; a hard bounce |
//! | `Bounce` of another type | accepted and tried, and given up, unless it may be an automatic answer (`Transient`, `General`) |
//! | `Bounce` or `Complaint` by a suppression list of SES itself | accepted, then refused: `suppressed` |
//! | `Reject` | accepted, then refused: `rejected` |
//! | `Rendering Failure` | accepted, then refused: `schema` |
//! | everything else | nothing |
//!
//! Anybody can have a topic at SNS whose messages SNS signs, so only those of the topics that the
//! settings name are read, and only their subscriptions are confirmed. The event's id is SNS's
//! `MessageId`, which stays the same while SNS tries again.

mod certificate;
mod fetch;
mod sns;

pub use fetch::{Fetch, Https};
pub use sns::{Topic, TopicError};

use self::certificate::Certificates;
use self::sns::{Envelope, Kind};
use super::{ProviderEvent, Received, Refused, SuppressionReason, Webhook, near};
use digest_workflows::operation::{FailureClass, Finding};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// SNS tries for an hour at most
/// (<https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html>), and a try is not
/// signed anew.
const TRIES_FOR: SignedDuration = SignedDuration::from_mins(75);

/// SES's own suppression lists, by the sub-type of the bounce or complaint that they answer with.
const LISTS: [&str; 3] = ["Suppressed", "OnAccountSuppressionList", "UnsubscribedRecipient"];

/// The webhook of Amazon SES, by way of SNS.
pub struct SesWebhook {
    topics: Vec<Topic>,
    certificates: Certificates,
    fetch: Arc<dyn Fetch>,
}

impl std::fmt::Debug for SesWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SesWebhook").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl SesWebhook {
    /// The webhook to which `topics` are subscribed; `fetch` asks SNS for certificates and confirms
    /// subscriptions, and is given no other address than SNS's.
    #[must_use]
    pub fn new(topics: Vec<Topic>, fetch: Arc<dyn Fetch>) -> Self {
        Self { topics, certificates: Certificates::default(), fetch }
    }

    /// Verifies `request`, and reads its events; confirms a subscription.
    async fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        let envelope: Envelope =
            serde_json::from_slice(request.body).map_err(|_| Refused::Unsigned)?;
        // Before anything is fetched for it.
        if !self.topics.iter().any(|topic| topic.arn() == envelope.topic_arn) {
            return Err(Refused::Elsewhere);
        }
        let fetch = self.fetch.as_ref();
        let certificate = self.certificates.get(&envelope, fetch, request.now).await?;
        certificate.verify(&envelope, request.now)?;
        let published = envelope.timestamp.parse().map_err(|_| Refused::Unsigned)?;
        near(published, request.now, TRIES_FOR)?;
        match envelope.kind {
            Kind::Notification => read(envelope),
            Kind::SubscriptionConfirmation => {
                self.confirm(&envelope).await?;
                Ok(Vec::new())
            }
            Kind::UnsubscribeConfirmation => {
                let topic = envelope.topic_arn;
                tracing::warn!(topic, "the subscription was ended; SNS brings no events any more");
                Ok(Vec::new())
            }
        }
    }

    /// Confirms the subscription to a topic of ours.
    async fn confirm(&self, envelope: &Envelope) -> Result<(), Refused> {
        let url = envelope.confirmation().ok_or(Refused::Malformed)?;
        let topic = &envelope.topic_arn;
        match self.fetch.get(&url).await {
            Ok(_) => {
                tracing::info!(topic, "the subscription is confirmed");
                Ok(())
            }
            Err(code) => {
                tracing::warn!(topic, code, "the subscription was not confirmed; SNS asks again");
                Err(Refused::NotNow)
            }
        }
    }
}

impl Webhook for SesWebhook {
    fn kind(&self) -> &'static str {
        "ses"
    }

    fn read<'a>(
        &'a self,
        request: &'a Received<'a>,
    ) -> BoxFuture<'a, Result<Vec<ProviderEvent>, Refused>> {
        self.events(request).boxed()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    // Without a configuration set, events have another name for it, and no tags.
    #[serde(rename = "eventType", alias = "notificationType")]
    kind: String,
    mail: Mail,
    #[serde(default)]
    bounce: Bounce,
    #[serde(default)]
    complaint: Complaint,
    #[serde(default)]
    subscription: Subscription,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mail {
    message_id: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bounce {
    #[serde(rename = "bounceType")]
    kind: String,
    #[serde(rename = "bounceSubType")]
    sub_kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Complaint {
    complaint_sub_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subscription {
    new_topic_preferences: Preferences,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preferences {
    unsubscribe_all: bool,
}

/// The event in a notification. A topic may bring other messages too, such as the one with which SES
/// tries it out; they say nothing.
fn read(envelope: Envelope) -> Result<Vec<ProviderEvent>, Refused> {
    let Ok(value) = serde_json::from_str::<Value>(&envelope.message) else {
        return Ok(Vec::new());
    };
    let is_event = ["eventType", "notificationType"].iter().any(|name| value.get(name).is_some());
    if !is_event {
        return Ok(Vec::new());
    }
    let mut event: Event = serde_json::from_value(value).map_err(|_| Refused::Malformed)?;
    let (findings, suppresses) = event.means();
    let carried = event.mail.tags.remove("operation_key").and_then(|mut values| values.pop());
    Ok(vec![ProviderEvent { id: envelope.message_id, carried, findings, suppresses }])
}

impl Event {
    /// By the table.
    fn means(&self) -> (Vec<Finding>, Option<SuppressionReason>) {
        let accepted = Finding::Accepted { message_id: self.mail.message_id.clone() };
        let refused = |class| (vec![Finding::Refused(class)], None);
        let Bounce { kind, sub_kind } = &self.bounce;
        let complaint = self.complaint.complaint_sub_type.as_deref().unwrap_or_default();
        let given_up = |reason| (vec![accepted.clone(), GIVEN_UP], reason);
        match self.kind.as_str() {
            "Send" | "Delivery" | "DeliveryDelay" | "Open" | "Click" => (vec![accepted], None),
            "Subscription" => {
                let all = self.subscription.new_topic_preferences.unsubscribe_all;
                (vec![accepted], all.then_some(SuppressionReason::OptOut))
            }
            "Bounce" if LISTS.contains(&sub_kind.as_str()) => refused(FailureClass::Suppressed),
            "Bounce" => match (kind.as_str(), sub_kind.as_str()) {
                ("Permanent", _) => given_up(Some(SuppressionReason::HardBounce)),
                ("Transient", "General") => (vec![accepted], None),
                _ => given_up(None),
            },
            "Complaint" if LISTS.contains(&complaint) => refused(FailureClass::Suppressed),
            "Complaint" => (vec![accepted], Some(SuppressionReason::Complaint)),
            "Reject" => refused(FailureClass::Rejected),
            "Rendering Failure" | "RenderingFailure" => refused(FailureClass::Schema),
            _ => (Vec::new(), None),
        }
    }
}

/// The provider gave up what it had accepted.
const GIVEN_UP: Finding = Finding::Refused(FailureClass::Recipient);

#[cfg(test)]
mod tests;
