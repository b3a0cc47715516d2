//! Connecting: what is wrong is named, in bounded time; and the search attributes.

use crate::{server, target};
use digest_tests::authority::Authority;
use digest_tests::handshake::{Asking, Seen};
use digestd::engine::connection::{Address, Target, connect};
use digestd::engine::{EngineError, search_attributes};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use temporalio_client::grpc::OperatorService as _;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;

fn given(address: &str) -> Target {
    Target {
        address: Address::Given(address.to_owned()),
        namespace: Some("default".to_owned()),
        identity: "a test".to_owned(),
        search_attributes: true,
    }
}

#[tokio::test]
async fn missing_search_attributes_are_named_with_the_command_and_then_registered() {
    let Some(server) = server(None, false).await else { return };
    let strict = target(&server);
    let error = connect(&strict).await.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(&error, EngineError::MissingSearchAttributes { missing, .. }
            if missing == &search_attributes::NAMES),
        "{text}"
    );
    let command = "temporal operator search-attribute create --namespace default --name \
                   DigestPeriod --name DigestCampaign --name DigestState --type Keyword";
    assert!(text.contains(command), "{text}");

    let client = server.client("a test").await.unwrap();
    let (one, other) =
        tokio::join!(search_attributes::register(&client), search_attributes::register(&client));
    one.unwrap();
    other.unwrap();
    search_attributes::register(&client).await.unwrap();
    connect(&strict).await.unwrap();
}

#[tokio::test]
async fn a_search_attribute_of_another_type_is_named() {
    let Some(server) = server(None, false).await else { return };
    let mut client = server.client("a test").await.unwrap();
    let add = AddSearchAttributesRequest {
        namespace: "default".to_owned(),
        search_attributes: [("DigestState".to_owned(), IndexedValueType::Int.into())].into(),
    };
    client.add_search_attributes(add.into_request()).await.unwrap();
    let error = search_attributes::register(&client).await.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, EngineError::SearchAttributeType { name: "DigestState", .. }),
        "{text}"
    );
    assert!(text.contains("Int"), "{text}");
}

#[tokio::test]
async fn a_wrong_namespace_is_named() {
    let Some(server) = server(None, false).await else { return };
    let wrong = Target { namespace: Some("shop-prod".to_owned()), ..target(&server) };
    let error = connect(&wrong).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EngineError::NoNamespace { .. }), "{text}");
    assert!(text.contains("shop-prod") && text.contains(&server.address().to_string()), "{text}");
}

#[tokio::test]
async fn tls_to_a_server_without_it_is_told() {
    let Some(server) = server(None, false).await else { return };
    let error = connect(&given(&format!("https://{}", server.address()))).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EngineError::Unreachable { .. }), "{text}");
    assert!(text.contains("TLS is on"), "{text}");
}

#[tokio::test]
async fn an_address_where_nothing_answers_is_named_within_half_a_minute() {
    // It accepts connections in its backlog and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap().to_string();
    drop(listener);
    let named = async |address: &str| {
        let begun = Instant::now();
        let error = connect(&given(address)).await.unwrap_err();
        let text = error.to_string();
        assert!(begun.elapsed() < Duration::from_secs(30), "took {:?}", begun.elapsed());
        assert!(matches!(error, EngineError::Unreachable { .. }), "{text}");
        assert!(text.contains(address), "{address} is not in: {text}");
    };
    let error = connect(&given(&closed)).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    tokio::join!(named(&closed), named("temporal.invalid:7233"), named(&silent_address));
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_anything_is_tried() {
    let error = connect(&given("temporal")).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EngineError::Settings { .. }), "{text}");
    assert!(text.contains("\"temporal\"") && text.contains("host:port"), "{text}");
}

/// The variable that turns the next test into a process with an environment of its own.
const CONNECT: &str = "DIGESTD_TEST_CONNECT";

#[tokio::test]
async fn connects_when_asked_to() {
    let Ok(address) = std::env::var(CONNECT) else { return };
    let address = match address.as_str() {
        "the environment" => Address::Environment,
        given => Address::Given(given.to_owned()),
    };
    let target = Target { address, namespace: None, ..given("") };
    match connect(&target).await {
        Ok(client) => println!("\nconnected to {:?}", client.options().namespace),
        Err(error) => println!("\nnot connected: {error}"),
    }
}

/// What a process with these variables comes back with.
fn connected(address: &str, variables: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TEMPORAL_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args(["--exact", "engine::settings::connects_when_asked_to", "--nocapture"])
        .env(CONNECT, address)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().find(|line| line.contains("connected")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_and_its_profiles_are_followed_where_the_configuration_is_silent() {
    let Some(server) = server(None, true).await else { return };
    let address = server.address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("temporal.toml");
    let profiles = format!(
        "[profile.default]\naddress = \"{address}\"\n[profile.cloud]\naddress = \"{address}\"\n\
         namespace = \"shop-prod\"\n"
    );
    std::fs::write(&file, profiles).unwrap();
    let file = file.to_str().unwrap();

    let by = |variables: &[(&str, &str)]| connected("the environment", variables);
    let default = "connected to \"default\"";
    assert_eq!(by(&[("TEMPORAL_ADDRESS", &address)]), default);
    assert_eq!(by(&[("TEMPORAL_CONFIG_FILE", file)]), default);
    let cloud = by(&[("TEMPORAL_CONFIG_FILE", file), ("TEMPORAL_PROFILE", "cloud")]);
    assert!(cloud.contains("has no namespace \"shop-prod\""), "{cloud}");
    let unknown = by(&[("TEMPORAL_CONFIG_FILE", file), ("TEMPORAL_PROFILE", "clouds")]);
    assert!(unknown.contains("unusable") && unknown.contains("clouds"), "{unknown}");

    // A server that the configuration names gets the variables' credentials and none from a profile.
    let elsewhere =
        connected(&address, &[("TEMPORAL_CONFIG_FILE", file), ("TEMPORAL_PROFILE", "cloud")]);
    assert_eq!(elsewhere, default);
    let with_key = connected(&address, &[("TEMPORAL_API_KEY", "s3cret")]);
    assert!(with_key.contains("TLS is on") && !with_key.contains("s3cret"), "{with_key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_shows_its_certificate_to_a_server_that_it_has_verified() {
    const NAME: &str = "temporal.shop.example";
    let authority = Authority::of(NAME).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (ca, pair) = (text(authority.file()), authority.client());
    let (certificate, key) = (text(pair.certificate()), text(pair.key()));
    let own = [
        ("TEMPORAL_TLS_CLIENT_CERT_PATH", certificate.as_str()),
        ("TEMPORAL_TLS_CLIENT_KEY_PATH", key.as_str()),
    ];
    let trusted = ("TEMPORAL_TLS_SERVER_CA_CERT_PATH", ca.as_str());
    let named = ("TEMPORAL_TLS_SERVER_NAME", NAME);
    let seen = async |variables: Vec<(&str, &str)>| {
        let server = Asking::start(&authority).await.unwrap();
        let address = server.address().to_string();
        let variables = [variables, own.to_vec()].concat();
        let said = tokio::task::block_in_place(|| connected(&address, &variables));
        assert!(said.contains("not connected"), "nothing answers there: {said}");
        assert!(said.contains(&address), "{said}");
        server.seen().await.unwrap()
    };
    assert_eq!(seen(vec![trusted, named]).await, Seen::Client { spoke: true });
    // Another name, or an authority that this machine does not trust: nothing is said, not even the key.
    let with_key = ("TEMPORAL_API_KEY", "s3cret");
    assert_eq!(seen(vec![trusted, with_key]).await, Seen::NoHandshake);
    assert_eq!(seen(vec![named, with_key]).await, Seen::NoHandshake);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_client_certificate_is_refused_by_name() {
    let authority = Authority::new().unwrap();
    let certificate = authority.client().certificate().to_str().unwrap();
    let said = connected("127.0.0.1:1", &[("TEMPORAL_TLS_CLIENT_CERT_PATH", certificate)]);
    assert!(said.contains("unusable") && said.contains("client key"), "{said}");
    let missing = connected("127.0.0.1:1", &[("TEMPORAL_TLS_SERVER_CA_CERT_PATH", "/no/such")]);
    assert!(missing.contains("unusable"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_never_sent_to_an_address_without_tls() {
    let remote = "http://temporal.invalid:7233";
    let said = connected(remote, &[("TEMPORAL_API_KEY", "s3cret")]);
    assert!(said.contains("would have no TLS") && !said.contains("s3cret"), "{said}");
    let off = [("TEMPORAL_API_KEY", "s3cret"), ("TEMPORAL_TLS", "false")];
    let said = connected("temporal.invalid:7233", &off);
    assert!(said.contains("would have no TLS"), "{said}");
    let by_variable = [("TEMPORAL_ADDRESS", remote), ("TEMPORAL_API_KEY", "s3cret")];
    let said = connected("the environment", &by_variable);
    assert!(said.contains("would have no TLS"), "{said}");
    let said = connected(remote, &[("TEMPORAL_TLS", "true")]);
    assert!(said.contains("TLS is set up"), "{said}");
    // Without anything secret it is tried.
    let said = connected(remote, &[]);
    assert!(said.contains("no Temporal server answered"), "{said}");
}
