use super::super::super::examples::{answer, class_of, proofs, with_header};
use super::*;
use FailureClass::{Configuration, RateLimited, Recipient, Schema};

fn refused(name: &str, message: &str) -> String {
    serde_json::json!({"__type": format!("com.amazonaws.ses#{name}"), "message": message})
        .to_string()
}

#[test]
fn only_what_the_table_lists_is_a_proof() {
    let quota = "Daily message quota exceeded.";
    let mut bodies = vec![
        (refused("AccountSuspendedException", ""), Some(Configuration)),
        (refused("SendingPausedException", ""), Some(Configuration)),
        (refused("MailFromDomainNotVerifiedException", ""), Some(Configuration)),
        (refused("LimitExceededException", ""), Some(Configuration)),
        (
            refused("MessageRejected", "Email address is not verified: ann@shop.example"),
            Some(Configuration),
        ),
        (refused("MessageRejected", "Transaction failed: ann@shop.example"), Some(Schema)),
        (refused("BadRequestException", "Missing final '@domain'"), Some(Recipient)),
        (refused("BadRequestException", "Grüße"), Some(Schema)),
        (refused("TooManyRequestsException", "Maximum sending rate exceeded."), Some(RateLimited)),
        (refused("TooManyRequestsException", quota), Some(Configuration)),
        (refused("ThrottlingException", ""), Some(RateLimited)),
        (refused("NotFoundException", ""), None),
        (refused("InternalServiceError", ""), None),
        (refused("SomethingNew", quota), None),
        ("<html>Grüße</html>".to_owned(), None),
    ];
    let authority = CREDENTIALS.into_iter().chain(PERMISSIONS);
    let first_of_authority = bodies.len();
    bodies.extend(authority.map(|name| (refused(name, ""), Some(Configuration))));
    let texts: Vec<String> = bodies.iter().map(|(text, _)| text.clone()).collect();
    let mut expected = Vec::new();
    for (index, (_, class)) in bodies.iter().enumerate() {
        expected.extend(class.map(|class| (400, index, class)));
    }
    expected.extend((first_of_authority..texts.len()).map(|index| (403, index, Configuration)));
    expected.push((404, 11, Configuration));
    expected.extend((0..texts.len()).map(|index| (413, index, Schema)));
    for (index, text) in texts.iter().enumerate() {
        let class = if text.contains(quota) { Configuration } else { RateLimited };
        expected.push((429, index, class));
    }
    assert_eq!(proofs(reply, &texts), expected);
}

#[test]
fn the_name_of_an_error_is_read_from_its_header_first() {
    let value = "MessageRejected:http://internal.amazon.com/coral/com.amazonaws.ses/";
    let body = r#"{"message":"Email address is not verified."}"#;
    let rejected = with_header(answer(400, body), "x-amzn-errortype", value);
    assert_eq!(class_of(reply, &rejected), Some(Configuration));
    let Reply::NotSent(failure) = reply(&rejected, Timestamp::UNIX_EPOCH) else { panic!() };
    assert_eq!(failure.code, "http 400 MessageRejected");
}

#[test]
fn only_a_200_with_its_id_is_a_yes() {
    let yes = answer(200, r#"{"MessageId":"0102-a"}"#);
    let accepted = Reply::Accepted { message_id: Some("0102-a".to_owned()) };
    assert_eq!(reply(&yes, Timestamp::UNIX_EPOCH), accepted);
    for body in ["{}", "<html>", ""] {
        let reply = reply(&answer(200, body), Timestamp::UNIX_EPOCH);
        assert!(matches!(reply, Reply::Unknown(_)), "{body}: {reply:?}");
    }
}
