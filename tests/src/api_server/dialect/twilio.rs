//! Twilio's messages: <https://www.twilio.com/docs/messaging/api/message-resource>.

use super::{Dialect, Part, Request, Response, Taken, part};
use FailureClass::{Configuration, Overloaded, RateLimited, Recipient, Schema, Suppressed};
use digest_activities::message::Redacted;
use digest_activities::provider::Provider;
use digest_activities::provider::alias::alias;
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::twilio::TwilioSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::{Value, json};
use std::sync::Arc;

/// The account of this API.
pub const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
/// A number of the account that can send text messages.
pub const NUMBER: &str = "+15005550006";
/// A messaging service of the account.
pub const SERVICE: &str = "MG0123456789abcdef0123456789abcdef";
/// Where the account is told that webhooks listen.
pub const PUBLIC_URL: &str = "https://hooks.shop.example";

/// Twilio's API.
#[derive(Clone, Copy, Debug)]
pub struct Twilio;

/// The list of messages.
fn messages() -> String {
    format!("/2010-04-01/Accounts/{ACCOUNT}/Messages.json")
}

fn error(status: u16, code: u32) -> Response {
    let body = json!({
        "code": code, "message": "No, ann at +15005550009", "status": status,
        "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
    });
    Response::new(status, body.to_string())
}

/// A field of the form in `request`; empty without it.
fn field(request: &Request, name: &str) -> String {
    let fields = url::form_urlencoded::parse(&request.body);
    let found = fields.into_owned().find(|(have, _)| have == name);
    found.map(|(_, value)| value).unwrap_or_default()
}

/// The record of a message.
fn record(id: &str, request: &Request) -> Value {
    let service = field(request, "MessagingServiceSid");
    let from = if service.is_empty() { field(request, "From") } else { NUMBER.to_owned() };
    json!({
        "sid": id,
        "account_sid": ACCOUNT,
        "status": "queued",
        "error_code": null,
        "direction": "outbound-api",
        "to": field(request, "To"),
        "from": from,
        "messaging_service_sid": if service.is_empty() { Value::Null } else { service.into() },
        "body": field(request, "Body"),
        "date_created": rfc2822::to_string(&Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC))
            .unwrap_or_default(),
        "date_sent": null,
    })
}

/// The messages that a question asks for: the first page holds a stranger's alone.
fn list(request: &Request, taken: &[Taken]) -> Value {
    let query = request.query();
    let asked =
        |name: &str| query.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str());
    if asked("Page").is_none() {
        let next = format!("{}&Page=1&PageToken=PASM0", request.target);
        let stranger = json!({
            "sid": "SM0", "status": "received", "direction": "inbound", "to": NUMBER,
            "from": asked("To"), "body": "STOP",
            "date_created": "Mon, 12 Oct 2026 07:00:00 +0000",
        });
        return json!({"messages": [stranger], "next_page_uri": next});
    }
    let matches = |record: &&Value| {
        let is = |name: &str, asked: Option<&str>| {
            asked.is_none_or(|asked| record[name].as_str() == Some(asked))
        };
        is("to", asked("To")) && is("from", asked("From"))
    };
    let all: Vec<Value> = taken.iter().map(|taken| record(&taken.id, &taken.request)).collect();
    let found: Vec<&Value> = all.iter().rev().filter(matches).collect();
    json!({"messages": found, "next_page_uri": null})
}

impl Dialect for Twilio {
    fn kind(&self) -> &'static str {
        "twilio"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        let username = Some(Redacted::new(ACCOUNT.to_owned()));
        let settings = ApiSettings { username, ..settings.clone() };
        let own = TwilioSettings {
            sender: Some(NUMBER.to_owned()),
            public_url: Some(PUBLIC_URL.to_owned()),
            ..TwilioSettings::default()
        };
        digest_activities::provider::twilio::Twilio::new(&settings, &own)
            .map(|twilio| Arc::new(twilio) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn sends_text_messages(&self) -> bool {
        true
    }

    /// The alias in the callback's URL; without a callback there is only the number.
    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == messages();
        let callback = field(request, "StatusCallback");
        let alias = callback.split_once("?operation=").map(|(_, alias)| alias.to_owned());
        sends.then(|| alias.unwrap_or_else(|| field(request, "To")))
    }

    fn expected(&self, key: &OperationKey) -> String {
        alias(key)
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let basic = request.header("authorization").unwrap_or_default();
        let credential = basic.strip_prefix("Basic ").unwrap_or_default().as_bytes();
        let credential = data_encoding::BASE64.decode(credential).unwrap_or_default();
        let user = credential.split(|byte| *byte == b':').next().unwrap_or_default();
        let callback = field(request, "StatusCallback");
        let callback = callback.split('?').next().unwrap_or_default().to_owned();
        vec![
            part("user", String::from_utf8_lossy(user).into_owned(), |_| ACCOUNT.to_owned()),
            part("To", field(request, "To"), |message| message.recipient.reveal().clone()),
            part("From", field(request, "From"), |message| message.sender.clone()),
            part("Body", field(request, "Body"), |message| message.text.reveal().clone()),
            part("ValidityPeriod", field(request, "ValidityPeriod"), |_| "36000".to_owned()),
            part("StatusCallback", callback, |_| format!("{PUBLIC_URL}/webhooks/twilio")),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        let body = json!({"sid": id, "status": "queued", "error_code": null});
        Response::new(201, body.to_string())
    }

    fn question(&self, request: &Request, taken: &[Taken]) -> Response {
        let account = format!("/2010-04-01/Accounts/{ACCOUNT}");
        let path = request.path();
        let of_account = path.strip_prefix(&account);
        let asked = |name: &str, is: &str| {
            request.query().iter().any(|(have, value)| have == name && value == is)
        };
        let body = match of_account {
            Some(".json") => json!({"sid": ACCOUNT, "status": "active", "type": "Full"}),
            Some("/Messages.json") => list(request, taken),
            Some("/IncomingPhoneNumbers.json") => {
                let ours = json!({"phone_number": NUMBER, "capabilities": {"sms": true}});
                let numbers = if asked("PhoneNumber", NUMBER) { vec![ours] } else { vec![] };
                json!({ "incoming_phone_numbers": numbers })
            }
            Some("/SMS/ShortCodes.json") => {
                let codes = if asked("ShortCode", "12345") { vec![json!({})] } else { vec![] };
                json!({ "short_codes": codes })
            }
            _ if path == format!("/v1/Services/{SERVICE}") => json!({ "sid": SERVICE }),
            _ => return error(404, 20_404),
        };
        Response::new(200, body.to_string())
    }

    fn again(&self, _first: &Taken, _request: &Request) -> Option<Response> {
        None
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        vec![
            (error(400, 21_211), Recipient),
            (error(400, 21_612), Recipient),
            (error(400, 21_614), Recipient),
            (error(400, 21_610), Suppressed),
            (error(400, 21_617), Schema),
            (error(400, 21_606), Configuration),
            (error(400, 21_408), Configuration),
            (error(400, 21_611), Overloaded),
            (error(401, 20_003), Configuration),
            (error(403, 20_005), Configuration),
            (error(404, 20_404), Configuration),
            (error(429, 63_038), Configuration),
            (error(429, 20_429), RateLimited),
            (Response::new(429, ""), RateLimited),
        ]
    }

    fn is_documented(&self, response: &Response) -> bool {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        [400, 401, 403, 404].contains(&response.status) && body["code"].is_u64()
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            Response::new(200, r#"{"sid":"SM1"}"#),
            Response::new(201, "{}"),
            Response::new(403, "<html>a firewall</html>"),
            Response::new(400, "<html>a proxy, ann</html>"),
            error(500, 20_500),
            error(503, 20_503),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        let account = |status: &str| {
            let body = json!({"sid": ACCOUNT, "status": status, "friendly_name": "ann"});
            Response::new(200, body.to_string())
        };
        vec![
            (error(401, 20_003), "credentials"),
            (error(403, 20_005), "suspended"),
            (account("suspended"), "suspended"),
            (account("closed"), "closed"),
            (error(404, 20_404), "provider.account_sid"),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
            (error(500, 20_500), "http 500"),
        ]
    }
}
