//! Connecting to a Temporal server in bounded time, with an error that names what is wrong.

use super::{EngineError, install_tls_provider, search_attributes, with_causes};
use std::net::SocketAddr;
use std::time::Duration;
use temporalio_client::envconfig::LoadClientConfigProfileOptions;
use temporalio_client::errors::ClientConnectError;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Code, IntoRequest as _, Status};
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, NamespacedClient as _, RetryOptions, Url,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;
use url::Host;

/// How long one TCP and TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(6);

/// Everything that [`connect`] does takes no longer than this.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// This one, without TLS and with nothing from the environment: a server of our own.
    Local(SocketAddr),
    /// `host:port` or a URL, from the configuration. Credentials come from the `TEMPORAL_*` variables
    /// (a profile's key is never sent to a server that the profile does not name).
    Given(String),
    /// Whatever the `TEMPORAL_*` variables and the profile in `temporal.toml` say, as for Temporal's
    /// own tools; 127.0.0.1:7233 when they say nothing.
    Environment,
}

/// What [`connect`] connects to, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which server.
    pub address: Address,
    /// The namespace; `None` takes the environment's, or else `default`.
    pub namespace: Option<String>,
    /// How this process shows in the server's histories.
    pub identity: String,
    /// Whether digestd's search attributes must be registered. Only the setup that registers them
    /// does without.
    pub search_attributes: bool,
}

/// Connects, and asks whether the namespace exists and, if wanted, whether it has the search
/// attributes. The client is bound to the namespace.
///
/// # Errors
/// Within [`CONNECT_TIMEOUT`]: [`EngineError::Settings`], [`EngineError::Unreachable`],
/// [`EngineError::Refused`], [`EngineError::NoNamespace`], [`EngineError::MissingSearchAttributes`],
/// [`EngineError::SearchAttributeType`] or [`EngineError::Call`].
pub async fn connect(target: &Target) -> Result<Client, EngineError> {
    install_tls_provider();
    let (options, namespace) = settings(target)?;
    let place = Place { address: options.target.to_string(), namespace };
    // `http://host:7233/` is the URL of what a person calls `host:7233`.
    let place = Place { address: plain(&place.address), ..place };
    let hint = tls_hint(&options);
    let steps = establish(options, &place, hint, target.search_attributes);
    tokio::time::timeout(CONNECT_TIMEOUT, steps).await.unwrap_or_else(|_| {
        Err(EngineError::Unreachable {
            address: place.address.clone(),
            reason: format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
            hint,
        })
    })
}

/// Where the calls go, for error texts.
struct Place {
    address: String,
    namespace: String,
}

/// The options of the connection, and the namespace.
fn settings(target: &Target) -> Result<(ConnectionOptions, String), EngineError> {
    let unusable = |reason: String| EngineError::Settings { reason };
    let (mut options, from_environment) = match &target.address {
        Address::Local(address) => {
            let url = Url::parse(&format!("http://{address}"))
                .map_err(|error| unusable(format!("the address {address}: {error}")))?;
            (ConnectionOptions::new(url).build(), None)
        }
        Address::Given(address) => {
            let profile = LoadClientConfigProfileOptions::builder().disable_file(true).build();
            let (mut options, client) = ClientOptions::load_from_config(profile)
                .map_err(|error| unusable(error.to_string()))?;
            options.target = url(address, options.tls_options.is_some())
                .map_err(|reason| unusable(format!("the address {address:?}: {reason}")))?;
            (options, Some(client.namespace))
        }
        Address::Environment => {
            let (options, client) =
                ClientOptions::load_from_config(LoadClientConfigProfileOptions::default())
                    .map_err(|error| unusable(error.to_string()))?;
            (options, Some(client.namespace))
        }
    };
    refuse_without_tls(&options).map_err(unusable)?;
    options.identity.clone_from(&target.identity);
    options.connect_timeout = Some(HANDSHAKE_TIMEOUT);
    let namespace =
        target.namespace.clone().or(from_environment).unwrap_or_else(|| "default".to_owned());
    Ok((options, namespace))
}

/// Refuses to say anything secret without TLS. An address that begins with `http://` has none, whatever
/// the variables say, and the key would go out readable. On loopback nobody listens in between.
fn refuse_without_tls(options: &ConnectionOptions) -> Result<(), String> {
    let on_loopback = match options.target.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let with_tls = options.target.scheme() == "https" && options.tls_options.is_some();
    if with_tls || on_loopback {
        return Ok(());
    }
    let what = if options.api_key.is_some() {
        "an API key is set (TEMPORAL_API_KEY or a profile's api_key)"
    } else if options.tls_options.is_some() {
        "TLS is set up (TEMPORAL_TLS_* or a profile's tls)"
    } else {
        return Ok(());
    };
    Err(format!(
        "{what}, and the connection to {} would have no TLS; take http:// from the address and \
         TEMPORAL_TLS=false from the environment",
        plain(options.target.as_str())
    ))
}

/// Reads `host:port` or a URL.
fn url(address: &str, tls: bool) -> Result<Url, String> {
    let text = if address.contains("://") {
        address.to_owned()
    } else {
        format!("{}://{address}", if tls { "https" } else { "http" })
    };
    let url = Url::parse(&text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" if url.host().is_some() && url.port().is_some() => Ok(url),
        "http" | "https" => Err("write host:port, such as 127.0.0.1:7233".to_owned()),
        other => Err(format!("{other}:// is not spoken here; write host:port")),
    }
}

/// `host:port` of a URL.
fn plain(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.trim_end_matches('/').to_owned()
}

/// What else may be wrong with an address where nothing answers in time or sense.
fn tls_hint(options: &ConnectionOptions) -> &'static str {
    if options.tls_options.is_some() || options.target.scheme() == "https" {
        "; TLS is on, so check too that the server speaks TLS and that its certificate is trusted \
         (TEMPORAL_TLS_SERVER_CA_CERT_PATH)"
    } else {
        "; TLS is off, so check too that the server does not require it (TEMPORAL_TLS=true)"
    }
}

async fn establish(
    mut options: ConnectionOptions,
    place: &Place,
    hint: &'static str,
    search_attributes: bool,
) -> Result<Client, EngineError> {
    // These first questions are asked once, for whoever wants to wait for a server asks again; and on
    // a plain connection, for one that is balanced over a name's addresses never says why it failed.
    let retry = std::mem::replace(&mut options.retry_options, RetryOptions::no_retries());
    let balance = options.dns_load_balancing.take();
    let mut connection = Connection::connect(options.clone())
        .await
        .map_err(|error| connect_error(&error, place, hint))?;
    let request = DescribeNamespaceRequest {
        namespace: place.namespace.clone(),
        ..DescribeNamespaceRequest::default()
    };
    let described = WorkflowService::describe_namespace(&mut connection, request.into_request())
        .await
        .map_err(|status| call_error("describing the namespace", &status, place, hint))?
        .into_inner();
    if search_attributes {
        search_attributes::check(&mut connection, &place.namespace, &described).await?;
    }
    if matches!(options.target.host(), Some(Host::Domain(name)) if name != "localhost") {
        options.dns_load_balancing = balance;
        connection = Connection::connect(options)
            .await
            .map_err(|error| connect_error(&error, place, hint))?;
    }
    *connection.retry_options_mut() = retry;
    Client::new(connection, ClientOptions::new(place.namespace.clone()).build())
        .map_err(|error| EngineError::Settings { reason: error.to_string() })
}

fn connect_error(error: &ClientConnectError, place: &Place, hint: &'static str) -> EngineError {
    match error {
        ClientConnectError::SystemInfoCallError(status) => {
            call_error("asking the server for its capabilities", status, place, hint)
        }
        // The text of this one may carry a header's value, which can be a secret.
        ClientConnectError::InvalidHeaders(_) => EngineError::Settings {
            reason: "a TEMPORAL_GRPC_META_* header has an invalid name or value".to_owned(),
        },
        ClientConnectError::InvalidConfig(reason) => {
            EngineError::Settings { reason: reason.clone() }
        }
        ClientConnectError::InvalidUri(reason) => {
            EngineError::Settings { reason: format!("the address {}: {reason}", place.address) }
        }
        ClientConnectError::TonicTransportError(reason) => EngineError::Unreachable {
            address: place.address.clone(),
            reason: with_causes(reason),
            hint,
        },
        other => EngineError::Unreachable {
            address: place.address.clone(),
            reason: with_causes(other),
            hint,
        },
    }
}

/// The class of a first call that failed.
fn call_error(doing: &str, status: &Status, place: &Place, hint: &'static str) -> EngineError {
    let address = place.address.clone();
    let namespace = place.namespace.clone();
    match status.code() {
        Code::NotFound => EngineError::NoNamespace { address, namespace },
        Code::Unauthenticated | Code::PermissionDenied => {
            EngineError::Refused { address, namespace, reason: status.message().to_owned() }
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
            EngineError::Unreachable { address, reason: with_causes(status), hint }
        }
        _ => EngineError::call(doing, status),
    }
}

/// The namespace that a client is bound to.
pub(crate) fn namespace(client: &Client) -> String {
    client.namespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (address, tls, expected) in [
            ("127.0.0.1:7233", false, "http://127.0.0.1:7233/"),
            ("temporal:7233", true, "https://temporal:7233/"),
            ("[::1]:7233", false, "http://[::1]:7233/"),
            ("https://ns.acct.tmprl.cloud:7233", false, "https://ns.acct.tmprl.cloud:7233/"),
        ] {
            assert_eq!(url(address, tls).unwrap().as_str(), expected);
        }
        for address in ["", "temporal", "temporal:", "grpc://temporal:7233", "a b:1", "h:99999"] {
            assert!(url(address, false).is_err(), "{address:?} was taken for an address");
        }
    }

    #[test]
    fn a_refused_key_is_told_from_a_silent_server() {
        let place =
            Place { address: "temporal:7233".to_owned(), namespace: "shop.a2dd6".to_owned() };
        let refused = |status| {
            connect_error(&ClientConnectError::SystemInfoCallError(status), &place, "").to_string()
        };
        for status in
            [Status::unauthenticated("jwt is expired"), Status::permission_denied("jwt is expired")]
        {
            let text = refused(status);
            for part in ["temporal:7233", "shop.a2dd6", "jwt is expired", "TEMPORAL_API_KEY"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
        let silent = refused(Status::unavailable("connection reset"));
        assert!(silent.contains("no Temporal server answered at temporal:7233"), "{silent}");
    }

    #[test]
    fn the_secret_in_a_bad_header_is_not_shown() {
        let error = temporalio_client::errors::InvalidHeaderError::InvalidAsciiHeaderValue {
            key: "authorization".to_owned(),
            value: "Bearer s3cret\n".to_owned(),
            source: "\n"
                .parse::<temporalio_client::tonic::metadata::AsciiMetadataValue>()
                .unwrap_err(),
        };
        let place = Place { address: "temporal:7233".to_owned(), namespace: "a".to_owned() };
        let error = connect_error(&ClientConnectError::InvalidHeaders(error), &place, "");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }

    #[test]
    fn an_error_text_shows_the_address_as_a_person_writes_it() {
        assert_eq!(plain("http://127.0.0.1:7233/"), "127.0.0.1:7233");
    }
}
