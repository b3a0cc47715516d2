use super::*;
use digest_tests::sns::{CERTIFICATE_URL, Sns};
use hyper::HeaderMap;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Mutex;
use url::Url;

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:digest-events";
const AT: &str = "2026-10-12T07:00:00.000Z";
const ID: &str = "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324";

/// Gives these pages in turn to whoever asks, the last one for ever, and keeps what was asked for.
struct Answers {
    pages: Mutex<Vec<Result<Vec<u8>, String>>>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    fn new(pages: Vec<Result<Vec<u8>, String>>) -> Arc<Self> {
        Arc::new(Self { pages: Mutex::new(pages), asked: Mutex::default() })
    }

    fn certificate_of(sns: &Sns) -> Arc<Self> {
        Self::new(vec![Ok(sns.certificate().into())])
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Fetch for Answers {
    fn get<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        self.asked.lock().unwrap().push(url.to_string());
        let mut pages = self.pages.lock().unwrap();
        let page = if pages.len() > 1 { pages.remove(0) } else { pages[0].clone() };
        std::future::ready(page).boxed()
    }
}

fn webhook(answers: &Arc<Answers>) -> SesWebhook {
    let other = Topic::parse("arn:aws:sns:eu-west-1:123456789012:other").unwrap();
    SesWebhook::new(vec![other, Topic::parse(TOPIC).unwrap()], answers.clone())
}

async fn read_at(
    webhook: &SesWebhook,
    body: &str,
    now: Timestamp,
) -> Result<Vec<ProviderEvent>, Refused> {
    webhook
        .read(&Received { query: "", headers: &HeaderMap::new(), body: body.as_bytes(), now })
        .await
}

async fn read(webhook: &SesWebhook, body: &str) -> Result<Vec<ProviderEvent>, Refused> {
    let now = AT.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(2);
    read_at(webhook, body, now).await
}

fn event(kind: &str, rest: &Value) -> String {
    let mut event = json!({
        "eventType": kind,
        "mail": {
            "messageId": "m1",
            "destination": ["ann@shop.example"],
            "tags": {"operation_key": ["k"], "ses:configuration-set": ["digest"]},
        },
    });
    for (name, value) in rest.as_object().unwrap() {
        event[name] = value.clone();
    }
    event.to_string()
}

#[tokio::test]
async fn an_event_is_read_by_the_table() {
    let sns = Sns::new().unwrap();
    let answers = Answers::certificate_of(&sns);
    let webhook = webhook(&answers);
    let accepted = || Finding::Accepted { message_id: Some("m1".to_owned()) };
    let given_up = || vec![accepted(), Finding::Refused(FailureClass::Recipient)];
    let refused = |class| vec![Finding::Refused(class)];
    let bounce = |kind: &str, sub: &str| {
        json!({"bounce": {"bounceType": kind, "bounceSubType": sub,
            "bouncedRecipients": [{"emailAddress": "ann@shop.example"}]}})
    };
    let complaint = |sub: Value| json!({"complaint": {"complaintSubType": sub}});
    let subscription =
        |all: bool| json!({"subscription": {"newTopicPreferences": {"unsubscribeAll": all}}});
    let [hard, unwelcome, opts_out] = SuppressionReason::ALL.map(Some);
    let suppressed = || refused(FailureClass::Suppressed);
    for (kind, rest, findings, suppresses) in [
        ("Send", json!({"send": {}}), vec![accepted()], None),
        ("Delivery", json!({}), vec![accepted()], None),
        ("DeliveryDelay", json!({}), vec![accepted()], None),
        ("Open", json!({}), vec![accepted()], None),
        ("Click", json!({}), vec![accepted()], None),
        ("Subscription", subscription(true), vec![accepted()], opts_out),
        ("Subscription", subscription(false), vec![accepted()], None),
        ("Bounce", bounce("Permanent", "General"), given_up(), hard),
        ("Bounce", bounce("Permanent", "NoEmail"), given_up(), hard),
        ("Bounce", bounce("Permanent", "Suppressed"), suppressed(), None),
        ("Bounce", bounce("Permanent", "OnAccountSuppressionList"), suppressed(), None),
        ("Bounce", bounce("Transient", "MailboxFull"), given_up(), None),
        ("Bounce", bounce("Transient", "General"), vec![accepted()], None),
        ("Bounce", bounce("Undetermined", "Undetermined"), given_up(), None),
        ("Complaint", complaint(Value::Null), vec![accepted()], unwelcome),
        ("Complaint", complaint("OnAccountSuppressionList".into()), suppressed(), None),
        (
            "Reject",
            json!({"reject": {"reason": "Bad content"}}),
            refused(FailureClass::Rejected),
            None,
        ),
        ("Rendering Failure", json!({}), refused(FailureClass::Schema), None),
        ("Something", json!({}), Vec::new(), None),
    ] {
        let body = sns.notification(TOPIC, ID, AT, &event(kind, &rest)).unwrap();
        let events = read(&webhook, &body).await.unwrap();
        let (id, carried) = (ID.to_owned(), Some("k".to_owned()));
        assert_eq!(events, [ProviderEvent { id, carried, findings, suppresses }], "{kind} {rest}");
    }
    assert_eq!(answers.asked(), [CERTIFICATE_URL], "the certificate is fetched once");
}

#[tokio::test]
async fn what_is_no_event_of_ses_says_nothing() {
    let sns = Sns::new().unwrap();
    let webhook = webhook(&Answers::certificate_of(&sns));
    let trial = "Successfully validated SNS topic for Amazon SES event publishing.";
    for message in [trial, "[]", "7", r#"{"a":"b"}"#] {
        let body = sns.notification(TOPIC, ID, AT, message).unwrap();
        assert_eq!(read(&webhook, &body).await, Ok(Vec::new()), "{message}");
    }
    let body = sns.notification(TOPIC, ID, AT, r#"{"eventType":"Send","mail":7}"#).unwrap();
    assert_eq!(read(&webhook, &body).await, Err(Refused::Malformed));
    // Without a configuration set events have no tags: kept, and nobody's.
    let plain = r#"{"notificationType":"Bounce","mail":{"messageId":"m1"}}"#;
    let body = sns.notification(TOPIC, ID, AT, plain).unwrap();
    assert_eq!(read(&webhook, &body).await.unwrap()[0].carried, None);
}

#[tokio::test]
async fn only_what_sns_signed_for_a_topic_of_ours_is_read() {
    let sns = Sns::new().unwrap();
    let answers = Answers::certificate_of(&sns);
    let webhook = webhook(&answers);
    let message = event("Delivery", &json!({}));
    let genuine = sns.notification(TOPIC, ID, AT, &message).unwrap();
    let other = |name: &str, value: &str| {
        let mut envelope: Value = serde_json::from_str(&genuine).unwrap();
        envelope[name] = value.into();
        envelope.to_string()
    };
    // Nothing is asked for on behalf of a stranger.
    let elsewhere = "arn:aws:sns:eu-west-1:999999999999:digest-events";
    let stranger = sns.notification(elsewhere, ID, AT, &message).unwrap();
    assert_eq!(read(&webhook, &stranger).await, Err(Refused::Elsewhere));
    for url in [
        "https://evil.example/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.example/SimpleNotificationService-0123.pem",
        "https://sns.evil.example/a.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://snsx.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://s3.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.a.b.amazonaws.com/SimpleNotificationService-0123.pem",
        // Names of a bucket of S3 that is called `sns`, another region, and another partition.
        "https://sns.s3-eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.s3.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-2.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com.cn/SimpleNotificationService-0123.pem",
        "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com:8443/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem?a=b",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-.pem",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-a/../b.pem",
        "https://sns.eu-west-1.amazonaws.com/other.pem",
        "https://sns.eu-west-1.amazonaws.com/",
        "",
    ] {
        let body = other("SigningCertURL", url);
        assert_eq!(read(&webhook, &body).await, Err(Refused::Unsigned), "{url}");
    }
    for body in ["", "{}", "<html>", r#"{"Type":"Notification"}"#] {
        assert_eq!(read(&webhook, body).await, Err(Refused::Unsigned), "{body}");
    }
    assert_eq!(answers.asked(), Vec::<String>::new());

    assert_eq!(read(&webhook, &genuine).await.unwrap().len(), 1);
    for (name, value) in [
        ("Message", event("Reject", &json!({})).as_str()),
        ("MessageId", "another"),
        ("Subject", "another"),
        ("Timestamp", "2026-10-12T07:00:01.000Z"),
        ("TopicArn", "arn:aws:sns:eu-west-1:123456789012:other"),
        ("Type", "UnsubscribeConfirmation"),
        ("Signature", "AAAA"),
        ("SignatureVersion", "1"),
    ] {
        let refused = read(&webhook, &other(name, value)).await;
        assert_eq!(refused, Err(Refused::NotOfCertificate), "{name}");
    }
    for (name, value) in [("SignatureVersion", "3"), ("Signature", "%%%")] {
        assert_eq!(read(&webhook, &other(name, value)).await, Err(Refused::Unsigned), "{name}");
    }
    let at: Timestamp = AT.parse().unwrap();
    for minutes in [-80, 80] {
        let now = at + SignedDuration::from_mins(minutes);
        assert_eq!(read_at(&webhook, &genuine, now).await, Err(Refused::Stale));
    }
    assert!(read_at(&webhook, &genuine, at + SignedDuration::from_mins(60)).await.is_ok());
}

/// Signed with `openssl dgst -sha1 -sign` and the key of the tests.
const SIGNED_WITH_SHA1: &str = include_str!("version_1.json");

#[tokio::test]
async fn the_older_signature_version_is_verified_too() {
    let webhook = webhook(&Answers::certificate_of(&Sns::new().unwrap()));
    let [event] = <[_; 1]>::try_from(read(&webhook, SIGNED_WITH_SHA1).await.unwrap()).unwrap();
    assert_eq!(event.carried.as_deref(), Some("k"));
    let other = SIGNED_WITH_SHA1.replace(ID, "another");
    assert_eq!(read(&webhook, &other).await, Err(Refused::NotOfCertificate));
    let as_sha256 =
        SIGNED_WITH_SHA1.replace(r#""SignatureVersion": "1""#, r#""SignatureVersion": "2""#);
    assert_ne!(as_sha256, SIGNED_WITH_SHA1);
    assert_eq!(read(&webhook, &as_sha256).await, Err(Refused::NotOfCertificate));
}

#[tokio::test]
async fn a_certificate_is_asked_for_again_until_it_comes_and_must_be_valid() {
    let sns = Sns::new().unwrap();
    let body = sns.notification(TOPIC, ID, AT, &event("Send", &json!({}))).unwrap();
    let pages =
        vec![Err("http 503".to_owned()), Ok(b"<html>".to_vec()), Ok(sns.certificate().into())];
    let answers = Answers::new(pages);
    let webhook = webhook(&answers);
    let at: Timestamp = AT.parse().unwrap();
    let at = |seconds| at + SignedDuration::from_secs(seconds);
    // SNS cannot now, and then has none: that is remembered, and longer.
    for (seconds, asked) in [(0, 1), (9, 1), (10, 2), (69, 2)] {
        let refused = read_at(&webhook, &body, at(seconds)).await;
        assert_eq!((refused, answers.asked().len()), (Err(Refused::NotNow), asked), "{seconds}");
    }
    for seconds in [70, 71] {
        assert!(read_at(&webhook, &body, at(seconds)).await.is_ok(), "{seconds}");
    }
    assert_eq!(answers.asked().len(), 3);

    let old = Sns::valid_until(2020).unwrap();
    let webhook = self::webhook(&Answers::certificate_of(&old));
    assert_eq!(read(&webhook, &body).await, Err(Refused::NotOfCertificate));
}

/// Gives the certificate of the genuine name at once, and says that there is no other when it is told
/// to go on.
struct Held {
    certificate: String,
    goes_on: tokio::sync::Semaphore,
    asked: Mutex<Vec<String>>,
}

impl Fetch for Held {
    fn get<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        async move {
            self.asked.lock().unwrap().push(url.to_string());
            if url.as_str() != CERTIFICATE_URL {
                self.goes_on.acquire().await.unwrap().forget();
                return Err("http 404".to_owned());
            }
            Ok(self.certificate.clone().into_bytes())
        }
        .boxed()
    }
}

#[tokio::test]
async fn many_names_keep_the_genuine_certificate_waiting_for_nobody() {
    let sns = Sns::new().unwrap();
    let held = Arc::new(Held {
        certificate: sns.certificate().to_owned(),
        goes_on: tokio::sync::Semaphore::new(0),
        asked: Mutex::default(),
    });
    let webhook = SesWebhook::new(vec![Topic::parse(TOPIC).unwrap()], held.clone());
    let genuine = sns.notification(TOPIC, ID, AT, &event("Send", &json!({}))).unwrap();
    let named = |name: usize| {
        let mut envelope: Value = serde_json::from_str(&genuine).unwrap();
        let url =
            format!("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-{name}.pem");
        envelope["SigningCertURL"] = url.into();
        envelope.to_string()
    };
    let bodies: Vec<String> = (0..100).map(named).collect();
    // All are begun; none of them waits for another that has a different name.
    let mut begun: Vec<_> = bodies.iter().map(|body| Box::pin(read(&webhook, body))).collect();
    let refused: Vec<_> = begun.iter_mut().filter_map(FutureExt::now_or_never).collect();
    assert!(refused.iter().all(|answer| *answer == Err(Refused::NotNow)), "{refused:?}");
    let refused = refused.len();
    let fetched = held.asked.lock().unwrap().len();
    assert!(fetched > 0 && fetched < 10 && fetched + refused == 100, "{fetched} {refused}");
    assert_eq!(read(&webhook, &genuine).await, Err(Refused::NotNow));
    // As soon as one has ended, whether by SNS's answer or because nobody waits any more.
    drop(begun.remove(0));
    assert_eq!(read(&webhook, &genuine).await.map(|events| events.len()), Ok(1));
    // And from then on, whatever else is named.
    let other = named(1_000);
    let mut other = Box::pin(read(&webhook, &other));
    assert!(other.as_mut().now_or_never().is_none());
    assert_eq!(read(&webhook, &genuine).await.map(|events| events.len()), Ok(1));
    // Those of one name wait for one fetch.
    let mut same = Box::pin(read(&webhook, &bodies[1]));
    assert!(same.as_mut().now_or_never().is_none());
    let before = held.asked.lock().unwrap().len();
    held.goes_on.add_permits(200);
    assert_eq!(same.as_mut().now_or_never(), None, "it waits for its turn");
    drop(other);
    assert_eq!(begun.remove(0).await, Err(Refused::NotNow));
    assert_eq!(same.await, Err(Refused::NotNow));
    assert_eq!(held.asked.lock().unwrap().len(), before);
}

#[tokio::test]
async fn only_a_subscription_to_a_topic_of_ours_is_confirmed_and_only_at_sns() {
    let sns = Sns::new().unwrap();
    let pages = vec![
        Ok(sns.certificate().into()),
        Err("http 500".to_owned()),
        Ok(b"<ConfirmSubscriptionResponse/>".to_vec()),
    ];
    let answers = Answers::new(pages);
    let webhook = webhook(&answers);
    let confirmation = |topic: &str, url: &str| {
        let mut envelope = json!({
            "Type": "SubscriptionConfirmation",
            "MessageId": ID,
            "Token": "2336412f37",
            "TopicArn": topic,
            "Message": "You have chosen to subscribe to the topic",
            "SubscribeURL": url,
            "Timestamp": AT,
        });
        sns.sign(&mut envelope).unwrap();
        envelope.to_string()
    };
    let subscribe = |host: &str, action: &str, topic: &str, token: &str| {
        format!("https://{host}/?Action={action}&TopicArn={topic}&Token={token}")
    };
    let host = "sns.eu-west-1.amazonaws.com";
    let right = subscribe(host, "ConfirmSubscription", TOPIC, "2336412f37");
    let elsewhere = "arn:aws:sns:eu-west-1:999999999999:digest-events";
    let body =
        confirmation(elsewhere, &subscribe(host, "ConfirmSubscription", elsewhere, "2336412f37"));
    assert_eq!(read(&webhook, &body).await, Err(Refused::Elsewhere));
    for wrong in [
        subscribe("evil.example", "ConfirmSubscription", TOPIC, "2336412f37"),
        subscribe("sns.s3-eu-west-1.amazonaws.com", "ConfirmSubscription", TOPIC, "2336412f37"),
        subscribe("sns.eu-west-2.amazonaws.com", "ConfirmSubscription", TOPIC, "2336412f37"),
        subscribe(
            "sns.eu-west-1.amazonaws.com.evil.example",
            "ConfirmSubscription",
            TOPIC,
            "2336412f37",
        ),
        subscribe(host, "DeleteTopic", TOPIC, "2336412f37"),
        subscribe(host, "ConfirmSubscription", elsewhere, "2336412f37"),
        subscribe(host, "ConfirmSubscription", TOPIC, "other"),
        right.replace("https:", "http:"),
        format!("{right}&Action=DeleteTopic"),
        right.replace("/?", "/x?"),
    ] {
        let refused = read(&webhook, &confirmation(TOPIC, &wrong)).await;
        assert_eq!(refused, Err(Refused::Malformed), "{wrong}");
    }
    assert_eq!(answers.asked(), [CERTIFICATE_URL]);
    let body = confirmation(TOPIC, &right);
    assert_eq!(read(&webhook, &body).await, Err(Refused::NotNow));
    assert_eq!(read(&webhook, &body).await, Ok(Vec::new()));
    assert_eq!(answers.asked()[1..], [right.clone(), right]);
}

#[tokio::test]
async fn a_topic_in_china_or_of_the_government_is_signed_for_in_its_own_region() {
    let sns = Sns::new().unwrap();
    for (topic, right, wrong) in [
        (
            "arn:aws-cn:sns:cn-north-1:123456789012:a",
            "sns.cn-north-1.amazonaws.com.cn",
            "sns.cn-north-1.amazonaws.com",
        ),
        (
            "arn:aws-us-gov:sns:us-gov-west-1:123456789012:a",
            "sns.us-gov-west-1.amazonaws.com",
            "sns.us-gov-west-1.amazonaws.com.cn",
        ),
    ] {
        let answers = Answers::certificate_of(&sns);
        let webhook = SesWebhook::new(vec![Topic::parse(topic).unwrap()], answers.clone());
        let genuine = sns.notification(topic, ID, AT, &event("Send", &json!({}))).unwrap();
        let at = |host: &str| {
            let mut envelope: Value = serde_json::from_str(&genuine).unwrap();
            let url = format!("https://{host}/SimpleNotificationService-0123.pem");
            envelope["SigningCertURL"] = url.into();
            envelope.to_string()
        };
        assert_eq!(read(&webhook, &at(wrong)).await, Err(Refused::Unsigned), "{wrong}");
        assert_eq!(read(&webhook, &at(right)).await.unwrap().len(), 1, "{right}");
    }
}

#[test]
fn a_topic_is_named_by_its_whole_arn() {
    for arn in [
        TOPIC,
        "arn:aws-cn:sns:cn-north-1:123456789012:a",
        "arn:aws-us-gov:sns:us-gov-west-1:123456789012:A_b-c.fifo",
    ] {
        assert_eq!(Topic::parse(arn).unwrap().arn(), arn);
    }
    for text in [
        "",
        "digest-events",
        "arn:aws:sqs:eu-west-1:123456789012:digest",
        "arn:aws:sns:eu-west-1:123456789012:",
        "arn:aws:sns:eu-west-1:12345:digest",
        "arn:aws:sns:eu-west-1:123456789012:*",
        "arn:aws:sns:eu-west-1:123456789012:digest:0b0f4c3c-subscription",
        "arn:evil:sns:eu-west-1:123456789012:digest",
    ] {
        let error = Topic::parse(text).unwrap_err();
        assert!(error.to_string().contains("arn:aws:sns:"), "{error}");
    }
}
