//! What SES's answers mean, by the name of the error
//! (<https://docs.aws.amazon.com/ses/latest/APIReference-V2/CommonErrors.html>):
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with a `MessageId` | accepted |
//! | 400 `AccountSuspendedException`, `SendingPausedException`, `MailFromDomainNotVerifiedException`, `LimitExceededException`; 404 `NotFoundException` (a configuration set) | not sent: `configuration` |
//! | 400 `MessageRejected` that says `not verified` | not sent: `configuration` |
//! | 400 and 403 of `CREDENTIALS` and `PERMISSIONS` | not sent: `configuration` |
//! | 429, and 400 of `THROTTLING`, that say `Daily message quota exceeded` | not sent: `configuration` |
//! | any other 429, and 400 of `THROTTLING` | not sent: `rate_limited` |
//! | 400 `BadRequestException` about the form of an address | not sent: `recipient` |
//! | any other 400 `BadRequestException` and `MessageRejected`; 413 | not sent: `schema` |
//! | everything else, and no answer | unknown |

use super::super::Reply;
use super::super::api::{read, told};
use super::super::exchange::Answer;
use super::super::retry_after::retry_after;
use digest_workflows::operation::{Failure, FailureClass};
use hyper::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

/// Errors that say who asks is not who they say.
pub(super) const CREDENTIALS: [&str; 8] = [
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "MissingAuthenticationToken",
    "IncompleteSignature",
    "ExpiredTokenException",
    "RequestExpired",
];

/// Errors that say who asks may not.
pub(super) const PERMISSIONS: [&str; 3] =
    ["AccessDeniedException", "NotAuthorized", "OptInRequired"];

/// Errors that say too much was asked for.
const THROTTLING: [&str; 3] = ["TooManyRequestsException", "ThrottlingException", "Throttling"];

/// What of a `BadRequestException` is about the form of an address.
const ADDRESS_FAULTS: [&str; 5] = [
    "Missing final '@domain'",
    "Illegal address",
    "Invalid email address",
    "Local address contains",
    "Domain contains illegal",
];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accepted {
    message_id: String,
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default, rename = "__type")]
    kind: String,
    #[serde(default, alias = "Message")]
    message: String,
}

/// The name of an error, which stands in a header or in the body, and what it says.
pub(super) fn refusal(answer: &Answer) -> (String, String) {
    let Refusal { kind, message } = read(answer).unwrap_or_default();
    let header = answer.headers.get("x-amzn-errortype").and_then(|kind| kind.to_str().ok());
    let kind = header.unwrap_or(&kind);
    // Either may go on with an address, or begin with a name space.
    let name = kind.split(':').next().unwrap_or_default();
    (name.rsplit('#').next().unwrap_or_default().to_owned(), message)
}

/// What `answer`, which came at `now`, says about its attempt.
pub(super) fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    if status == StatusCode::OK {
        return match read::<Accepted>(answer) {
            Some(Accepted { message_id }) => Reply::Accepted { message_id: Some(message_id) },
            None => Reply::Unknown("http 200 without an id".to_owned()),
        };
    }
    let (name, message) = refusal(answer);
    let code = told(status, &name);
    match class(status, &name, &message) {
        Some(class) => {
            let mut failure = Failure::new(class, code);
            failure.retry_after = retry_after(&answer.headers, now);
            Reply::NotSent(failure)
        }
        None => Reply::Unknown(code),
    }
}

/// The class of a refusal that is proven not sent.
pub(super) fn class(status: StatusCode, name: &str, message: &str) -> Option<FailureClass> {
    let is_throttled = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::BAD_REQUEST && THROTTLING.contains(&name));
    if is_throttled {
        let is_spent = message.contains("Daily message quota exceeded");
        return Some(if is_spent {
            FailureClass::Configuration
        } else {
            FailureClass::RateLimited
        });
    }
    Some(match (status.as_u16(), name) {
        (
            400,
            "AccountSuspendedException"
            | "SendingPausedException"
            | "MailFromDomainNotVerifiedException"
            | "LimitExceededException",
        )
        | (404, "NotFoundException") => FailureClass::Configuration,
        (400 | 403, name) if CREDENTIALS.contains(&name) || PERMISSIONS.contains(&name) => {
            FailureClass::Configuration
        }
        (400, "MessageRejected") if message.contains("not verified") => FailureClass::Configuration,
        (400, "BadRequestException")
            if ADDRESS_FAULTS.into_iter().any(|fault| message.contains(fault)) =>
        {
            FailureClass::Recipient
        }
        (400, "BadRequestException" | "MessageRejected") | (413, _) => FailureClass::Schema,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
