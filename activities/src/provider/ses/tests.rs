use super::super::examples::{PRIVATE, key, message};
use super::*;

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
