use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
use super::*;
use FailureClass::{Configuration, Overloaded, RateLimited, Recipient, Schema, Suppressed};

const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
const SERVICE: &str = "MG0123456789abcdef0123456789abcdef";

fn settings(username: &str) -> ApiSettings {
    ApiSettings {
        username: Some(Redacted::new(username.to_owned())),
        password: Some(Redacted::new("verysecret".to_owned())),
        ..ApiSettings::default()
    }
}

fn twilio(public_url: Option<&str>) -> Twilio {
    let own = TwilioSettings {
        public_url: public_url.map(ToOwned::to_owned),
        validity: Some(SignedDuration::from_hours(4)),
        ..TwilioSettings::default()
    };
    Twilio::new(&settings(ACCOUNT), &own).unwrap()
}

fn text_message(sender: &str) -> FrozenMessage {
    FrozenMessage {
        recipient: Redacted::new("+15005550009".to_owned()),
        sender: sender.to_owned(),
        from: sender.to_owned(),
        subject: Redacted::new(String::new()),
        text: Redacted::new("Grüße & 100% = a+b\n🎉".to_owned()),
        html: None,
        headers: Redacted::new(Vec::new()),
        mime: Redacted::new(Vec::new()),
        content_hash: "0".repeat(64),
    }
}

fn tells(code: u32) -> String {
    serde_json::json!({"code": code, "message": "No, Grüße", "status": 400}).to_string()
}

#[test]
fn only_what_the_table_lists_is_a_proof() {
    let codes = [
        (21_610, Suppressed),
        (21_611, Overloaded),
        (20_003, Configuration),
        (21_606, Configuration),
        (21_408, Configuration),
        (63_038, Configuration),
        (21_617, Schema),
        (20_001, Schema),
        (63_001, Schema),
        (21_211, Recipient),
        (21_612, Recipient),
        (21_614, Recipient),
        (21_999, Recipient),
    ];
    let mut bodies: Vec<String> = codes.iter().map(|(code, _)| tells(*code)).collect();
    let told = bodies.len();
    bodies.extend(["{}".to_owned(), "<html>Grüße</html>".to_owned(), String::new()]);
    let mut expected = Vec::new();
    expected.extend(codes.iter().enumerate().map(|(index, (_, class))| (400, index, *class)));
    for status in [401, 403, 404] {
        for (index, (_, class)) in codes.iter().enumerate() {
            let by_code = status == 403 && [Suppressed, Overloaded].contains(class);
            expected.push((status, index, if by_code { *class } else { Configuration }));
        }
    }
    for index in 0..bodies.len() {
        let is_limit = codes.get(index).is_some_and(|(code, _)| *code == 63_038);
        expected.push((429, index, if is_limit { Configuration } else { RateLimited }));
    }
    assert_eq!(proofs(reply, &bodies), expected);
    assert!(told > 10);
    let slow = with_header(answer(429, ""), "retry-after", "9");
    let Reply::NotSent(failure) = reply(&slow, Timestamp::UNIX_EPOCH) else { panic!("{slow:?}") };
    assert_eq!(failure.retry_after, Some(SignedDuration::from_secs(9)));
    assert_eq!(class_of(reply, &answer(400, &tells(21_211))), Some(Recipient));
}

#[test]
fn only_created_with_a_sid_is_a_yes() {
    let reply = |status, body| reply(&answer(status, body), Timestamp::UNIX_EPOCH);
    let accepted = Reply::Accepted { message_id: Some("SM1".to_owned()) };
    assert_eq!(reply(201, r#"{"sid":"SM1","status":"queued","error_code":null}"#), accepted);
    for (status, body) in
        [(200, r#"{"sid":"SM1"}"#), (201, "{}"), (201, ""), (202, r#"{"sid":"SM1"}"#)]
    {
        assert!(matches!(reply(status, body), Reply::Unknown(_)), "{status} {body}");
    }
}

#[test]
fn a_message_becomes_the_same_form_every_time_and_its_callback_carries_the_key() {
    let key = key();
    let with = twilio(Some("https://hooks.shop.example/"));
    let message = text_message("+15005550006");
    let form = with.form(&key, &message).unwrap();
    assert_eq!(form, with.form(&key, &message).unwrap());
    let callback = format!("https://hooks.shop.example/webhooks/twilio?operation={}", alias(&key));
    let fields = |form: &str| -> Vec<(String, String)> {
        form_urlencoded::parse(form.as_bytes()).into_owned().collect()
    };
    let expected = |sender: (&str, &str), callback: Option<&str>| -> Vec<(String, String)> {
        let text = message.text.reveal().as_str();
        let fields = [("To", "+15005550009"), sender, ("Body", text), ("ValidityPeriod", "14400")];
        let callback = callback.map(|url| ("StatusCallback", url));
        let all = fields.into_iter().chain(callback);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    assert_eq!(fields(&form), expected(("From", "+15005550006"), Some(&callback)));
    let without = twilio(None).form(&key, &text_message(SERVICE)).unwrap();
    assert_eq!(fields(&without), expected(("MessagingServiceSid", SERVICE), None));
    let other = OperationKey::new("digest", key.period(), "other").unwrap();
    assert_ne!(with.form(&other, &message).unwrap(), form);
}

#[test]
fn what_is_no_text_message_is_not_sent() {
    let twilio = twilio(None);
    let class = |message: &FrozenMessage| twilio.form(&key(), message).unwrap_err().class;
    assert_eq!(class(&message()), Schema);
    assert_eq!(class(&text_message("Shop <digest@shop.example>")), Schema);
}

#[test]
fn a_record_is_ours_only_if_everything_is_the_same_and_it_is_not_older() {
    let begin: Timestamp = "2026-10-12T07:00:00Z".parse().unwrap();
    let record = |change: &[(&str, serde_json::Value)]| -> Record {
        let mut record = serde_json::json!({
            "sid": "SM1", "status": "queued", "error_code": null, "direction": "outbound-api",
            "to": "+15005550009", "from": "+15005550006", "messaging_service_sid": null,
            "body": "Grüße & 100% = a+b\r\n🎉", "date_created": "Mon, 12 Oct 2026 07:00:00 +0000",
        });
        for (name, value) in change {
            record[*name] = value.clone();
        }
        serde_json::from_value(record).unwrap()
    };
    let message = text_message("+15005550006");
    let is = |change: &[(&str, serde_json::Value)]| {
        record(change).is(&message, Sender::Number("+15005550006"), begin)
    };
    assert!(is(&[]));
    assert!(is(&[("status", "failed".into()), ("date_sent", serde_json::Value::Null)]));
    for change in [
        ("direction", "inbound"),
        ("direction", "outbound-reply"),
        ("to", "+15005550008"),
        ("from", "+15005550005"),
        ("body", "Grüße & 100% = a+b\n"),
        ("body", "Sent from your Twilio trial account - Grüße & 100% = a+b\n🎉"),
        ("date_created", "Mon, 12 Oct 2026 06:59:59 +0000"),
        ("date_created", "2026-10-12"),
    ] {
        assert!(!is(&[(change.0, change.1.into())]), "{change:?}");
    }
    for missing in ["to", "from", "body", "date_created"] {
        assert!(!is(&[(missing, serde_json::Value::Null)]), "{missing}");
    }
    // A service has chosen the sender, and is named beside it.
    let by_service = text_message(SERVICE);
    let service = Sender::Service(SERVICE);
    assert!(!record(&[]).is(&by_service, service, begin));
    assert!(record(&[("messaging_service_sid", SERVICE.into())]).is(&by_service, service, begin));
}

#[test]
fn of_several_records_one_that_was_accepted_counts() {
    let record = |status: &str, code: Option<u32>| -> Record {
        let json = serde_json::json!({"sid": status, "status": status, "error_code": code});
        serde_json::from_value(json).unwrap()
    };
    let failed = || record("failed", Some(21_610));
    let accepted = |sid: &str| Some(Found::Accepted { message_id: Some(sid.to_owned()) });
    assert_eq!(found([failed(), record("sent", None)].iter()), accepted("sent"));
    assert_eq!(found([record("undelivered", Some(30_003))].iter()), accepted("undelivered"));
    assert_eq!(found([failed()].iter()), Some(Found::Refused(Suppressed)));
    assert_eq!(found([record("received", None)].iter()), None);
    assert_eq!(found([].iter()), None);
}

#[test]
fn a_page_is_one_of_the_same_list() {
    let list = "/2010-04-01/Accounts/AC1/Messages.json";
    assert!(is_page_of(&format!("{list}?To=%2B1&PageSize=100&Page=1&PageToken=PASM1"), list));
    for other in [
        "",
        list,
        "https://evil.example/2010-04-01/Accounts/AC1/Messages.json?Page=1",
        "/2010-04-01/Accounts/AC2/Messages.json?Page=1",
        "/2010-04-01/Accounts/AC1/Messages.json?a b",
        "/2010-04-01/Accounts/AC1/Messages.json?a\r\nb",
    ] {
        assert!(!is_page_of(other, list), "{other:?}");
    }
}

#[test]
fn the_account_is_that_of_the_user_name_unless_a_key_is_used_for_a_named_one() {
    let named = |sid: &str| TwilioSettings {
        account_sid: Some(sid.to_owned()),
        ..TwilioSettings::default()
    };
    let none = TwilioSettings::default();
    let own = Twilio::new(&settings(ACCOUNT), &none).unwrap();
    let by_key = Twilio::new(&settings("SK1"), &named(ACCOUNT)).unwrap();
    assert_eq!((own.is_key, by_key.is_key), (false, true));
    assert_eq!(own.provider_ref(), by_key.provider_ref(), "a new key is no new account");
    Twilio::new(&settings(ACCOUNT), &named(ACCOUNT)).unwrap();
    let other = ACCOUNT.replace('0', "f");
    let of_other = Twilio::new(&settings("SK1"), &named(&other)).unwrap();
    assert_ne!(own.provider_ref(), of_other.provider_ref());
    for (username, own) in [("SK1", &none), ("SK1", &named("AC1")), (ACCOUNT, &named(&other))] {
        let error = Twilio::new(&settings(username), own).unwrap_err().to_string();
        assert!(error.starts_with("provider.account_sid is "), "{error}");
    }
    for broken in ["", "AC:1", "AC\n1"] {
        let error = Twilio::new(&settings(broken), &named(ACCOUNT)).unwrap_err().to_string();
        assert!(error.contains(USERNAME_VARIABLE), "{broken:?}: {error}");
    }
    let nobody = Twilio::new(&ApiSettings::default(), &none).unwrap_err().to_string();
    assert!(nobody.contains(USERNAME_VARIABLE), "{nobody}");
    let shown = format!("{by_key:?}");
    assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
}

#[test]
fn services_are_asked_at_the_api_beside() {
    let base = |url: Option<&str>| {
        let settings = ApiSettings { url: url.map(ToOwned::to_owned), ..settings(ACCOUNT) };
        Twilio::new(&settings, &TwilioSettings::default()).unwrap().services.base()
    };
    assert_eq!(base(None), "https://messaging.twilio.com:443");
    let region = base(Some("https://api.dublin.ie1.twilio.com"));
    assert_eq!(region, "https://messaging.dublin.ie1.twilio.com:443");
    assert_eq!(base(Some("http://127.0.0.1:8080")), "http://127.0.0.1:8080");
}
