use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
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

#[test]
fn a_message_becomes_the_same_bytes_every_time() {
    let bytes = body(&key(), &message(), Some("weekly")).unwrap();
    assert_eq!(bytes, body(&key(), &message(), Some("weekly")).unwrap());
    let data = BASE64.encode(message().mime.reveal());
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        format!(
            r#"{{"Destination":{{"ToAddresses":["ann+1@shop.example"]}},"Content":{{"Raw":{{"Data":"{data}"}}}},"EmailTags":[{{"Name":"operation_key","Value":"{}"}}],"ConfigurationSetName":"weekly"}}"#,
            alias(&key())
        )
    );
    let without = String::from_utf8(body(&key(), &message(), None).unwrap()).unwrap();
    assert!(!without.contains("ConfigurationSetName"), "{without}");
}

fn settings(url: Option<&str>) -> ApiSettings {
    ApiSettings {
        url: url.map(ToOwned::to_owned),
        username: Some(Redacted::new("AKIAverysecret".to_owned())),
        password: Some(Redacted::new("verysecret/+".to_owned())),
        ..ApiSettings::default()
    }
}

#[test]
fn the_region_is_named_or_stands_in_the_url() {
    let named =
        |region: &str| SesSettings { region: Some(region.to_owned()), ..Default::default() };
    let base = |url, own: &SesSettings| Ses::new(&settings(url), own).map(|ses| ses.api.base());
    let none = SesSettings::default();
    assert_eq!(
        base(None, &named("eu-west-1")).unwrap(),
        "https://email.eu-west-1.amazonaws.com:443"
    );
    let url = Some("https://email-fips.us-east-1.amazonaws.com");
    assert_eq!(Ses::new(&settings(url), &none).unwrap().signer.region, "us-east-1");
    for (url, own) in
        [(None, none.clone()), (Some("http://127.0.0.1:5000"), none), (None, named("eu west"))]
    {
        let error = base(url, &own).unwrap_err().to_string();
        assert!(error.starts_with("provider.region is "), "{error}");
    }
}

#[test]
fn both_credentials_are_needed_and_never_shown() {
    let own = SesSettings { region: Some("eu-west-1".to_owned()), ..Default::default() };
    let shown = format!("{:?}", Ses::new(&settings(None), &own).unwrap());
    assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
    let without = [
        (ApiSettings { username: None, ..settings(None) }, USERNAME_VARIABLE),
        (ApiSettings { password: None, ..settings(None) }, PASSWORD_VARIABLE),
        (
            ApiSettings { username: Some(Redacted::new("a b".to_owned())), ..settings(None) },
            USERNAME_VARIABLE,
        ),
    ];
    for (settings, variable) in without {
        let error = Ses::new(&settings, &own).unwrap_err().to_string();
        assert!(error.contains(variable) && !error.contains("verysecret"), "{error}");
    }
}

#[test]
fn a_spent_quota_and_a_pause_are_told_apart() {
    let own = SesSettings { region: Some("eu-west-1".to_owned()), ..Default::default() };
    let ses = Ses::new(&settings(None), &own).unwrap();
    let account = |sending_enabled, max_24_hour_send, sent_last_24_hours| Account {
        sending_enabled,
        production_access_enabled: true,
        send_quota: Quota { max_24_hour_send, sent_last_24_hours },
    };
    assert!(ses.check_account(&account(true, 200.0, 199.0)).is_ok());
    assert!(ses.check_account(&account(true, -1.0, 9_000.0)).is_ok(), "no limit");
    assert!(ses.check_account(&account(true, 200.0, 200.0)).unwrap_err().contains("200 of 200"));
    assert!(ses.check_account(&account(false, 200.0, 0.0)).unwrap_err().contains("paused"));
}
