//! digestd's search attributes: whether a namespace has them, and registering them.

use super::connection::namespace;
use super::{EngineError, code_name};
use jiff::SignedDuration;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use temporalio_client::grpc::{OperatorService, WorkflowService};
use temporalio_client::tonic::{Code, IntoRequest as _};
use temporalio_client::{Client, Connection};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::{
    AddSearchAttributesRequest, ListSearchAttributesRequest,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    CountWorkflowExecutionsRequest, DescribeNamespaceRequest, DescribeNamespaceResponse,
};

/// The search attributes, each a Keyword: the period, the campaign and the state of an operation.
pub const NAMES: [&str; 3] = ["DigestPeriod", "DigestCampaign", "DigestState"];

/// How long a registration may take until queries know it.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Registers those that the namespace lacks, and waits until a query that uses all of them is
/// accepted. Changes nothing when all are there.
///
/// # Errors
/// [`EngineError::MayNotRegister`] with the command for the namespace's owner,
/// [`EngineError::SearchAttributeType`], or [`EngineError::Call`].
pub async fn register(client: &Client) -> Result<(), EngineError> {
    let namespace = namespace(client);
    let mut client = client.clone();
    let described = DescribeNamespaceRequest {
        namespace: namespace.clone(),
        ..DescribeNamespaceRequest::default()
    };
    let described = client
        .describe_namespace(described.into_request())
        .await
        .map_err(|status| EngineError::call("describing the namespace", &status))?
        .into_inner();
    let missing = match check(client.connection_mut(), &namespace, &described).await {
        Err(EngineError::MissingSearchAttributes { missing, .. }) => missing,
        Err(error) => return Err(error),
        Ok(()) => Vec::new(),
    };
    if !missing.is_empty() {
        let request = AddSearchAttributesRequest {
            namespace: namespace.clone(),
            search_attributes: missing
                .iter()
                .map(|name| ((*name).to_owned(), IndexedValueType::Keyword.into()))
                .collect(),
        };
        match client.add_search_attributes(request.into_request()).await {
            Ok(_) => {}
            // Somebody else registers them at the same time.
            Err(status) if status.code() == Code::AlreadyExists => {}
            Err(status) => {
                return Err(EngineError::MayNotRegister {
                    reason: format!("{}: {}", code_name(status.code()), status.message()),
                    command: command(&namespace, &missing),
                    namespace,
                });
            }
        }
    }
    until_visible(&mut client, &namespace).await
}

/// Whether the namespace has all of them, and for how long it keeps closed workflows, if it tells.
///
/// # Errors
/// [`EngineError::MissingSearchAttributes`], [`EngineError::SearchAttributeType`], or
/// [`EngineError::Call`].
pub async fn verify(client: &Client) -> Result<Option<SignedDuration>, EngineError> {
    let namespace = namespace(client);
    let mut client = client.clone();
    let described = DescribeNamespaceRequest {
        namespace: namespace.clone(),
        ..DescribeNamespaceRequest::default()
    };
    let described = client
        .describe_namespace(described.into_request())
        .await
        .map_err(|status| EngineError::call("describing the namespace", &status))?
        .into_inner();
    check(client.connection_mut(), &namespace, &described).await?;
    let kept = described.config.and_then(|config| config.workflow_execution_retention_ttl);
    Ok(kept.map(|kept| SignedDuration::from_secs(kept.seconds)))
}

/// Each part of the server reads the registration from a cache of its own, for some seconds an old
/// one; a query that names an attribute is refused until its part knows it.
async fn until_visible(client: &mut Client, namespace: &str) -> Result<(), EngineError> {
    let query = NAMES.map(|name| format!("{name} = 'none'")).join(" and ");
    let begun = Instant::now();
    loop {
        let request = CountWorkflowExecutionsRequest {
            namespace: namespace.to_owned(),
            query: query.clone(),
        };
        match client.count_workflow_executions(request.into_request()).await {
            Ok(_) => return Ok(()),
            Err(status)
                if status.code() != Code::InvalidArgument || begun.elapsed() > VISIBLE_TIMEOUT =>
            {
                return Err(EngineError::call(
                    "querying the search attributes after registering them",
                    &status,
                ));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Whether the namespace has all of them, each a Keyword.
pub(super) async fn check(
    connection: &mut Connection,
    namespace: &str,
    described: &DescribeNamespaceResponse,
) -> Result<(), EngineError> {
    let request = ListSearchAttributesRequest { namespace: namespace.to_owned() };
    let found = match connection.list_search_attributes(request.into_request()).await {
        Ok(listed) => typed(listed.into_inner().custom_attributes),
        // The operator service is closed to many clients; the namespace's own description tells the
        // same where attributes are per namespace (SQL visibility and Temporal Cloud).
        Err(status)
            if matches!(
                status.code(),
                Code::PermissionDenied | Code::Unimplemented | Code::Unauthenticated
            ) =>
        {
            aliased(described)
        }
        Err(status) => return Err(EngineError::call("listing the search attributes", &status)),
    };
    let mut missing = Vec::new();
    for name in NAMES {
        match found.get(name) {
            None => missing.push(name),
            Some(kind) if kind == "Keyword" => {}
            Some(kind) => {
                return Err(EngineError::SearchAttributeType {
                    namespace: namespace.to_owned(),
                    name,
                    found: kind.clone(),
                });
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(EngineError::MissingSearchAttributes {
        namespace: namespace.to_owned(),
        command: command(namespace, &missing),
        missing,
    })
}

/// Names and types as the operator service lists them.
fn typed(listed: HashMap<String, i32>) -> HashMap<String, String> {
    listed
        .into_iter()
        .map(|(name, kind)| {
            let kind = IndexedValueType::try_from(kind).unwrap_or_default();
            let kind = match kind {
                IndexedValueType::Unspecified => "unspecified",
                IndexedValueType::Text => "Text",
                IndexedValueType::Keyword => "Keyword",
                IndexedValueType::Int => "Int",
                IndexedValueType::Double => "Double",
                IndexedValueType::Bool => "Bool",
                IndexedValueType::Datetime => "Datetime",
                IndexedValueType::KeywordList => "KeywordList",
            };
            (name, kind.to_owned())
        })
        .collect()
}

/// Names and types from a namespace's aliases: a column such as `Keyword01` stands for each name.
fn aliased(described: &DescribeNamespaceResponse) -> HashMap<String, String> {
    let aliases = described.config.as_ref().map(|config| &config.custom_search_attribute_aliases);
    aliases
        .into_iter()
        .flatten()
        .map(|(column, name)| {
            let kind = column.trim_end_matches(|c: char| c.is_ascii_digit());
            (name.clone(), kind.to_owned())
        })
        .collect()
}

/// The command that registers these.
fn command(namespace: &str, missing: &[&str]) -> String {
    format!(
        "temporal operator search-attribute create --namespace {namespace} --name {} --type Keyword",
        missing.join(" --name ")
    )
}
