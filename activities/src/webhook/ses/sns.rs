//! Messages of Amazon SNS over HTTPS: their envelope, what of it is signed, and which addresses in it
//! are SNS's own
//! (<https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html>).

use serde::Deserialize;
use url::Url;

/// A topic of SNS, by its ARN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic(String);

/// The text is no ARN of a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the ARN of an SNS topic; write one such as \"arn:aws:sns:eu-west-1:123456789012:digest-events\""
)]
pub struct TopicError(String);

impl Topic {
    /// The topic with this ARN.
    ///
    /// # Errors
    /// [`TopicError`] for anything but the whole ARN of one topic.
    pub fn parse(arn: &str) -> Result<Self, TopicError> {
        let parts: Vec<&str> = arn.split(':').collect();
        let is_plain = |part: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            !part.is_empty() && part.bytes().all(plain)
        };
        let is_topic = match parts.as_slice() {
            ["arn", partition, "sns", region, account, name] => {
                (*partition == "aws" || partition.starts_with("aws-"))
                    && is_plain(region)
                    && account.len() == 12
                    && account.bytes().all(|b| b.is_ascii_digit())
                    && is_plain(name)
            }
            _ => false,
        };
        if is_topic { Ok(Self(arn.to_owned())) } else { Err(TopicError(arn.to_owned())) }
    }

    /// The ARN.
    #[must_use]
    pub fn arn(&self) -> &str {
        &self.0
    }
}

/// The name of a certificate has 32 letters and digits.
const NAME_MAX: usize = 64;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Kind {
    /// Something was published.
    Notification,
    /// Somebody has subscribed this webhook, and SNS asks whether it wants that.
    SubscriptionConfirmation,
    /// Somebody has ended the subscription.
    UnsubscribeConfirmation,
}

/// A message as SNS posts it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Envelope {
    #[serde(rename = "Type")]
    pub(super) kind: Kind,
    pub(super) message_id: String,
    pub(super) topic_arn: String,
    pub(super) message: String,
    pub(super) timestamp: String,
    pub(super) signature_version: String,
    pub(super) signature: String,
    #[serde(rename = "SigningCertURL")]
    signing_cert_url: String,
    subject: Option<String>,
    token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    subscribe_url: Option<String>,
}

impl Envelope {
    /// What is signed: these fields with their names, in this order, each on a line.
    pub(super) fn signed(&self) -> String {
        let always = |name, value: &str| format!("{name}\n{value}\n");
        let maybe = |name, value: &Option<String>| match value {
            Some(value) => format!("{name}\n{value}\n"),
            None => String::new(),
        };
        let kind = match self.kind {
            Kind::Notification => "Notification",
            Kind::SubscriptionConfirmation => "SubscriptionConfirmation",
            Kind::UnsubscribeConfirmation => "UnsubscribeConfirmation",
        };
        let is_notification = self.kind == Kind::Notification;
        let mut parts =
            vec![always("Message", &self.message), always("MessageId", &self.message_id)];
        if is_notification {
            parts.push(maybe("Subject", &self.subject));
        } else {
            parts.push(maybe("SubscribeURL", &self.subscribe_url));
        }
        parts.push(always("Timestamp", &self.timestamp));
        if !is_notification {
            parts.push(maybe("Token", &self.token));
        }
        parts.push(always("TopicArn", &self.topic_arn));
        parts.push(always("Type", kind));
        parts.concat()
    }

    /// Where the signing certificate is; `None` for an address that is not one of SNS's
    /// certificates.
    pub(super) fn certificate(&self) -> Option<Url> {
        let url = of_sns(&self.signing_cert_url, &self.topic_arn)?;
        let name = url.path().strip_prefix("/SimpleNotificationService-")?.strip_suffix(".pem")?;
        let plain =
            (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric());
        (plain && url.query().is_none()).then_some(url)
    }

    /// What to ask for to confirm the subscription; `None` for an address that does anything else.
    pub(super) fn confirmation(&self) -> Option<Url> {
        let url = of_sns(self.subscribe_url.as_deref()?, &self.topic_arn)?;
        let value = |name: &str| {
            let mut all = url.query_pairs().filter(|(key, _)| key == name);
            let first = all.next().map(|(_, value)| value.into_owned());
            first.filter(|_| all.next().is_none())
        };
        let confirms = url.path() == "/"
            && value("Action").as_deref() == Some("ConfirmSubscription")
            && value("TopicArn").as_deref() == Some(self.topic_arn.as_str())
            && value("Token").is_some_and(|token| Some(token) == self.token);
        confirms.then_some(url)
    }
}

/// The address `text`, if it is one at SNS itself, in the region of the topic with this ARN:
/// `https://sns.<region>.amazonaws.com`, or `.com.cn` in China, and no port, user or fragment beside
/// it. A host that only looks like it may be a bucket of S3 that somebody has called `sns`.
fn of_sns(text: &str, topic_arn: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let mut parts = topic_arn.split(':').skip(1);
    let (partition, region) = (parts.next()?, parts.nth(1)?);
    let domain = if partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
    let bare = url.port().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none();
    let at_sns = url.host_str()? == format!("sns.{region}.{domain}");
    (url.scheme() == "https" && at_sns && bare).then_some(url)
}
