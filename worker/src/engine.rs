//! The Temporal server as an outside part: where its binary comes from, a development server as a
//! child process, connecting to any server, its search attributes and its schedules.
//!
//! Everything that can go wrong with it is one [`EngineError`], whose text says what was tried, what
//! came back and what to do next.

pub mod binary;
pub mod connection;
pub mod schedule;
pub mod search_attributes;
pub mod server;

use temporalio_client::tonic::{Code, Status};

/// Why the Temporal server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The settings of the connection are unusable; nothing was tried.
    #[error(
        "the settings for the Temporal server are unusable: {reason}; correct `[engine]` in the \
         configuration, the TEMPORAL_* variables or temporal.toml"
    )]
    Settings {
        /// What is wrong, without any secret.
        reason: String,
    },
    /// No server answered at the address.
    #[error(
        "no Temporal server answered at {address}: {reason}; check that the server runs and the \
         address is right (`[engine] address` or TEMPORAL_ADDRESS){hint}"
    )]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// What came back.
        reason: String,
        /// A further cure that fits this address, or nothing.
        hint: &'static str,
    },
    /// The server answered and refused this client.
    #[error(
        "the Temporal server at {address} refused this client in namespace {namespace:?}: {reason}; \
         check the API key (TEMPORAL_API_KEY) or the client certificate (TEMPORAL_TLS_*) and what it \
         may do in this namespace"
    )]
    Refused {
        /// The address that was tried.
        address: String,
        /// The namespace that was asked for.
        namespace: String,
        /// What the server said.
        reason: String,
    },
    /// The server knows no such namespace.
    #[error(
        "the Temporal server at {address} has no namespace {namespace:?}; correct `[engine] \
         namespace` or TEMPORAL_NAMESPACE, or create it with `temporal operator namespace create \
         --address {address} --namespace {namespace}`"
    )]
    NoNamespace {
        /// The address that was tried.
        address: String,
        /// The namespace that was asked for.
        namespace: String,
    },
    /// Search attributes that digestd sets are not registered in the namespace.
    #[error(
        "namespace {namespace:?} lacks the search attributes {}; run `digestd setup`, or let the \
         owner of the namespace run `{command}`",
        missing.join(", ")
    )]
    MissingSearchAttributes {
        /// The namespace that was asked for.
        namespace: String,
        /// The names that are missing.
        missing: Vec<&'static str>,
        /// The exact command that registers them.
        command: String,
    },
    /// A search attribute has the right name and another type.
    #[error(
        "namespace {namespace:?} has the search attribute {name} with type {found}, and digestd sets \
         a Keyword; rename the other one or use another namespace"
    )]
    SearchAttributeType {
        /// The namespace that was asked for.
        namespace: String,
        /// The attribute.
        name: &'static str,
        /// The type it has.
        found: String,
    },
    /// The namespace forbids this client to register search attributes.
    #[error(
        "registering search attributes in namespace {namespace:?} was refused: {reason}; let the \
         owner of the namespace run `{command}`"
    )]
    MayNotRegister {
        /// The namespace that was asked for.
        namespace: String,
        /// What the server said.
        reason: String,
        /// The exact command that registers them.
        command: String,
    },
    /// There is no such schedule.
    #[error("namespace {namespace:?} has no schedule {id:?}; `digestd setup` creates it")]
    NoSchedule {
        /// The namespace that was asked for.
        namespace: String,
        /// The schedule's id.
        id: String,
    },
    /// Another change to the schedule was always faster than ours.
    #[error(
        "schedule {id:?} did not take the update: it reads back unchanged or changed by somebody \
         else after {tries} tries; look at it with `temporal schedule describe --schedule-id {id}` \
         and run `digestd setup` again"
    )]
    ScheduleContended {
        /// The schedule's id.
        id: String,
        /// How often it was tried.
        tries: usize,
    },
    /// Any other call that failed.
    #[error("{doing} failed at the Temporal server with {code}: {message}")]
    Call {
        /// What was tried, as a noun phrase.
        doing: String,
        /// The gRPC code.
        code: &'static str,
        /// What the server said.
        message: String,
    },
}

impl EngineError {
    /// A failed call, without a better class.
    fn call(doing: impl Into<String>, status: &Status) -> Self {
        Self::Call {
            doing: doing.into(),
            code: code_name(status.code()),
            message: status.message().to_owned(),
        }
    }
}

/// Makes ring the TLS provider of this process. Has no effect when one is installed already.
pub fn install_tls_provider() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// The name of a gRPC code as Temporal's own tools print it.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "Ok",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// An error and all its causes in one line; a cause that the line already says is left out.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = inner.source();
    }
    text
}
