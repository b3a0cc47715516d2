//! How each provider's API speaks, as its documentation has it.

mod mailgun;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
pub mod twilio;

pub use mailgun::Mailgun;
pub use postmark::Postmark;
pub use resend::Resend;
pub use sendgrid::Sendgrid;
pub use ses::Ses;
pub use twilio::Twilio;

use super::{Request, Response, Taken};
use digest_activities::message::FrozenMessage;
use digest_activities::provider::Provider;
use digest_activities::provider::api::ApiSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::Value;
use std::sync::Arc;

/// A part of a message that arrived.
pub struct Part {
    /// Its name, for a failing test.
    pub name: &'static str,
    /// What arrived.
    pub sent: String,
    /// What the message has there.
    pub expected: fn(&FrozenMessage) -> String,
}

/// What a provider's API says, and what its adapter must make of it.
pub trait Dialect: Send + Sync + 'static {
    /// The name in `provider.kind`.
    fn kind(&self) -> &'static str;

    /// The adapter for an account with these settings.
    ///
    /// # Errors
    /// A setting that it does not take, in its words.
    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String>;

    /// Whether what it takes is text messages; mail if not.
    fn sends_text_messages(&self) -> bool {
        false
    }

    /// What a request to send carries for the operation, as the adapter writes it; `None` for a
    /// question.
    fn key(&self, request: &Request) -> Option<String>;

    /// What [`key`](Self::key) is for this operation.
    fn expected(&self, key: &OperationKey) -> String;

    /// The messages of a request that sends several, with the key that each carries; `None` for any
    /// other request.
    fn batch(&self, _request: &Request) -> Option<Vec<(String, Value)>> {
        None
    }

    /// The answer to a batch: for each message its id, or `None` where it is refused.
    fn batch_answer(&self, ids: &[Option<String>]) -> Response {
        let id = ids.iter().flatten().next().cloned().unwrap_or_default();
        self.accepted(&id)
    }

    /// Whether a batch of which one message is refused is taken without it.
    fn is_per_item(&self) -> bool {
        false
    }

    /// The answer to a batch of four: accepted with the id `a`, one that cannot be read, one without
    /// an id, and one with a code that no table lists. `None` where entries have no answers.
    fn odd_entries(&self) -> Option<Response> {
        None
    }

    /// Whether the recipient of this message is one that the provider refuses.
    fn refuses(&self, _message: &Value) -> bool {
        false
    }

    /// The parts of the message, as they arrived in a request and as they should have.
    fn content(&self, request: &Request) -> Vec<Part>;

    /// The answer to a message that was taken.
    fn accepted(&self, id: &str) -> Response;

    /// The answer to a question: a look-up, or a check.
    fn question(&self, request: &Request, taken: &[Taken]) -> Response;

    /// The answer to a request under a key that was taken before; `None` if it is taken once more.
    fn again(&self, first: &Taken, request: &Request) -> Option<Response>;

    /// Every refusal that is documented as not processed, with the class that it belongs to.
    fn refusals(&self) -> Vec<(Response, FailureClass)>;

    /// Whether an answer beside those of [`refusals`](Self::refusals) is documented as not
    /// processed: a code that means the same under several statuses.
    fn is_documented(&self, _response: &Response) -> bool {
        false
    }

    /// Answers that prove nothing.
    fn ambiguous(&self) -> Vec<Response>;

    /// Whether a 2xx whose body cannot be read means accepted.
    fn unreadable_is_accepted(&self) -> bool;

    /// What a check hears from a bad account, and a word that its sentence must hold.
    fn bad_accounts(&self) -> Vec<(Response, &'static str)>;
}

fn part(name: &'static str, sent: String, expected: fn(&FrozenMessage) -> String) -> Part {
    Part { name, sent, expected }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An object of headers, one a line, sorted.
fn header_lines(object: &Value) -> String {
    let fields = object.as_object().into_iter().flatten();
    let mut all: Vec<String> =
        fields.map(|(name, value)| format!("{name}: {}", text(value))).collect();
    all.sort();
    all.join("\n")
}

/// The message's headers, one a line, sorted, without those that the provider sets itself.
fn without_own_headers(message: &FrozenMessage) -> String {
    let own = ["Message-ID", "Date"];
    let all = message.headers.reveal().iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let mut all: Vec<String> = all.map(|(name, value)| format!("{name}: {value}")).collect();
    all.sort();
    all.join("\n")
}
