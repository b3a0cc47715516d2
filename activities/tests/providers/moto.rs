//! The adapter `ses` against moto, whose reading of SES's interface is not ours.

use crate::bench::{key, message, settings, soon};
use digest_activities::message::Redacted;
use digest_activities::provider::api::{Api, read};
use digest_activities::provider::exchange::Answer;
use digest_activities::provider::ses::{Ses, SesSettings};
use digest_activities::provider::{Provider, Reply};
use digest_tests::moto::Moto;
use digest_workflows::operation::FailureClass;
use hyper::header::AUTHORIZATION;
use serde_json::{Value, json};

/// Enough for moto to tell which service and region are meant.
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=AKIA/20261012/eu-west-1/ses/aws4_request, \
                      SignedHeaders=host, Signature=0";

#[tokio::test]
async fn a_message_to_moto_is_refused_before_its_sender_is_known_and_taken_byte_for_byte_after() {
    let Some(moto) = Moto::start() else { return };
    let own = SesSettings { region: Some("eu-west-1".to_owned()), ..SesSettings::default() };
    let ses = Ses::new(&settings(&moto.url()), &own).unwrap();
    let api = Api::new(&moto.url(), None).unwrap();
    let key = key("customer-1842");
    let mut message = message(&key);
    let mime = "From: digest@shop.example\r\nTo: ann+news@shop.example\r\nSubject: Your week\r\n\
                X-Operation-Key: digest:2026-W42:customer-1842\r\n\r\nHello\r\n.\r\n";
    message.mime = Redacted::new(mime.as_bytes().to_vec());

    let ready = soon(ses.prepare(&key, &message)).await.unwrap();
    let Reply::NotSent(failure) = soon(ready.hand_over()).await else { panic!("it was taken") };
    // moto's words for an unknown sender are its own, so only the error's name tells the class.
    assert_eq!(failure.class, FailureClass::Schema);
    assert_eq!(failure.code, "http 400 MessageRejected");

    let identity = json!({"EmailIdentity": "shop.example"}).to_string().into_bytes();
    let signed = [(AUTHORIZATION, SIGNED.to_owned())];
    let request = api.post("/v2/email/identities", &signed, "application/json", identity).unwrap();
    let made = |answer: &Answer, _| {
        assert!(answer.status.is_success(), "{answer:?}");
        Reply::Accepted { message_id: None }
    };
    soon(soon(api.ready(request, made)).await.unwrap().hand_over()).await;

    let ready = soon(ses.prepare(&key, &message)).await.unwrap();
    let reply = soon(ready.hand_over()).await;
    let Reply::Accepted { message_id: Some(id) } = reply else { panic!("{reply:?}") };
    let stored = soon(api.get("/moto-api/data.json")).await.unwrap();
    let stored: Value = read(&stored).unwrap();
    let stored = &stored["ses"]["RawMessage"];
    assert_eq!(stored.as_array().unwrap().len(), 1, "{stored}");
    assert_eq!(stored[0]["id"], id.as_str());
    // moto adds the recipients of the header to those of the request.
    let recipients = stored[0]["destinations"].as_array().unwrap();
    let ours = message.recipient.reveal().as_str();
    assert!(!recipients.is_empty() && recipients.iter().all(|to| to == ours), "{stored}");
    assert_eq!(stored[0]["raw_data"], mime);
}
