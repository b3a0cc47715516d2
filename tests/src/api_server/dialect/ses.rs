//! Amazon SES, API v2: <https://docs.aws.amazon.com/ses/latest/APIReference-V2>.

use super::{Dialect, Part, Request, Response, Taken, part, text, without_own_headers};
use FailureClass::{Configuration, RateLimited, Recipient, Schema};
use digest_activities::provider::Provider;
use digest_activities::provider::alias::alias;
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::ses::SesSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// Amazon SES's API in one region.
#[derive(Clone, Copy, Debug)]
pub struct Ses {
    /// Whether messages share requests.
    pub bulk: bool,
}

/// Where requests with several messages go.
const BULK: &str = "/v2/email/outbound-bulk-emails";

/// What says that the credentials, or their permissions, do not do.
const AUTHORITY: [&str; 11] = [
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "MissingAuthenticationToken",
    "IncompleteSignature",
    "ExpiredTokenException",
    "RequestExpired",
    "AccessDeniedException",
    "NotAuthorized",
    "OptInRequired",
];

fn error(status: u16, name: &str, message: &str) -> Response {
    Response::new(status, json!({"__type": name, "message": message}).to_string())
}

/// A sender whose name may come in encoded words of UTF-8 and base64.
fn decoded(from: &str) -> String {
    let mut name = Vec::new();
    let mut rest = from;
    while let Some(after) = rest.strip_prefix("=?UTF-8?B?") {
        let (word, more) = after.split_once("?=").unwrap_or_default();
        name.extend(data_encoding::BASE64.decode(word.as_bytes()).unwrap_or_default());
        rest = more.trim_start();
    }
    if name.is_empty() {
        from.to_owned()
    } else {
        format!("{} {rest}", String::from_utf8_lossy(&name))
    }
}

/// The parts of a message that SES has built.
fn built_content(message: &Value) -> Vec<Part> {
    let headers = message["ReplacementHeaders"].as_array().into_iter().flatten();
    let mut headers: Vec<String> = headers
        .map(|header| format!("{}: {}", text(&header["Name"]), text(&header["Value"])))
        .collect();
    headers.sort();
    vec![
        part("from", text(&message["From"]), |message| message.from.clone()),
        part("to", text(&message["Destination"]["ToAddresses"][0]), |message| {
            message.recipient.reveal().clone()
        }),
        part("subject", text(&message["Subject"]), |message| message.subject.reveal().clone()),
        part("text", text(&message["Text"]), |message| message.text.reveal().clone()),
        part("html", text(&message["Html"]), |message| {
            message.html.as_ref().map(|html| html.reveal().clone()).unwrap_or_default()
        }),
        part("headers", headers.join("\n"), without_own_headers),
    ]
}

impl Dialect for Ses {
    fn kind(&self) -> &'static str {
        "ses"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        let own = SesSettings {
            region: Some("eu-west-1".to_owned()),
            configuration_set: None,
            bulk: self.bulk,
        };
        digest_activities::provider::ses::Ses::new(settings, &own)
            .map(|ses| Arc::new(ses) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == "/v2/email/outbound-emails";
        sends.then(|| text(&request.json()["EmailTags"][0]["Value"]))
    }

    fn batch(&self, request: &Request) -> Option<Vec<(String, Value)>> {
        if request.path() != BULK {
            return None;
        }
        let body = request.json();
        let places = &body["DefaultContent"]["Template"]["TemplateContent"];
        let of = |entry: &Value| {
            let mut built = entry.clone();
            built["From"] = decoded(&text(&body["FromEmailAddress"])).into();
            let data = &entry["ReplacementEmailContent"]["ReplacementTemplate"];
            let data: Value =
                serde_json::from_str(data["ReplacementTemplateData"].as_str()?).ok()?;
            // As SES fills the template: each place by its name, without escaping.
            for (place, name) in [("Subject", "subject"), ("Text", "text"), ("Html", "html")] {
                if places[place] == format!("{{{{{name}}}}}") {
                    built[place] = data[name].clone();
                }
            }
            Some((text(&entry["ReplacementTags"][0]["Value"]), built))
        };
        Some(body["BulkEmailEntries"].as_array().into_iter().flatten().filter_map(of).collect())
    }

    fn batch_answer(&self, ids: &[Option<String>]) -> Response {
        let entry = |id: &Option<String>| match id {
            Some(id) => json!({"Status": "SUCCESS", "MessageId": id}),
            None => json!({"Status": "INVALID_PARAMETER", "Error": "Missing final '@domain'"}),
        };
        let entries: Vec<Value> = ids.iter().map(entry).collect();
        Response::new(200, json!({ "BulkEmailEntryResults": entries }).to_string())
    }

    fn is_per_item(&self) -> bool {
        true
    }

    fn odd_entries(&self) -> Option<Response> {
        let entries = json!([
            {"Status": "SUCCESS", "MessageId": "a"}, "?", {"Status": "SUCCESS"}, {"Status": "FAILED"},
        ]);
        Some(Response::new(200, json!({ "BulkEmailEntryResults": entries }).to_string()))
    }

    fn refuses(&self, message: &Value) -> bool {
        text(&message["Destination"]["ToAddresses"][0]).starts_with("bad")
    }

    fn expected(&self, key: &OperationKey) -> String {
        alias(key)
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let body = request.json();
        if self.bulk {
            return built_content(&body);
        }
        let data = text(&body["Content"]["Raw"]["Data"]);
        let mime = data_encoding::BASE64.decode(data.as_bytes()).unwrap_or_default();
        let signed = request.header("authorization").unwrap_or_default();
        let signed = signed.split("SignedHeaders=").nth(1).unwrap_or_default();
        let signed: Vec<&str> = signed.split(',').next().unwrap_or_default().split(';').collect();
        let needed = ["content-type", "host", "x-amz-date"];
        let has_all = needed.iter().all(|name| signed.contains(name));
        vec![
            part("signed", has_all.to_string(), |_| "true".to_owned()),
            part("to", body["Destination"].to_string(), |message| {
                json!({"ToAddresses": [message.recipient.reveal()]}).to_string()
            }),
            part("message", String::from_utf8_lossy(&mime).into_owned(), |message| {
                String::from_utf8_lossy(message.mime.reveal()).into_owned()
            }),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        if self.bulk {
            return self.batch_answer(&[Some(id.to_owned())]);
        }
        Response::new(200, json!({ "MessageId": id }).to_string())
    }

    fn question(&self, request: &Request, _taken: &[Taken]) -> Response {
        if request.header("authorization").is_none() || request.header("x-amz-date").is_none() {
            return error(403, "MissingAuthenticationToken", "not signed");
        }
        let body = match request.path() {
            "/v2/email/account" => json!({
                "SendingEnabled": true,
                "ProductionAccessEnabled": true,
                "SendQuota": {"Max24HourSend": 50000.0, "SentLast24Hours": 7.0, "MaxSendRate": 14.0},
            }),
            "/v2/email/identities" => json!({"EmailIdentities": [
                {"IdentityType": "DOMAIN", "IdentityName": "new.example", "SendingEnabled": false},
                {"IdentityType": "DOMAIN", "IdentityName": "shop.example", "SendingEnabled": true},
            ]}),
            _ => return error(404, "NotFoundException", "nothing here"),
        };
        Response::new(200, body.to_string())
    }

    fn again(&self, _first: &Taken, _request: &Request) -> Option<Response> {
        None
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        let no = "No, ann@shop.example";
        let spent = "Daily message quota exceeded.";
        let mut all = vec![
            (error(400, "AccountSuspendedException", no), Configuration),
            (error(400, "SendingPausedException", no), Configuration),
            (error(400, "MailFromDomainNotVerifiedException", no), Configuration),
            (error(400, "LimitExceededException", no), Configuration),
            (error(404, "NotFoundException", no), Configuration),
            (error(400, "MessageRejected", "Email address is not verified."), Configuration),
            (error(400, "MessageRejected", no), Schema),
            (error(400, "BadRequestException", "Missing final '@domain'"), Recipient),
            (error(400, "BadRequestException", no), Schema),
            (error(429, "TooManyRequestsException", "Maximum sending rate exceeded."), RateLimited),
            (error(429, "TooManyRequestsException", spent), Configuration),
            (error(400, "ThrottlingException", "Rate exceeded"), RateLimited),
            (error(400, "TooManyRequestsException", spent), Configuration),
            (Response::new(413, "<html>too large</html>"), Schema),
        ];
        for name in AUTHORITY {
            all.push((error(400, name, no), Configuration));
            all.push((error(403, name, no), Configuration));
        }
        all
    }

    fn is_documented(&self, response: &Response) -> bool {
        let name = |response: &Response| {
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            (response.status, body["__type"].clone())
        };
        let named = self.refusals().into_iter().filter(|(one, _)| !name(one).1.is_null());
        named.into_iter().any(|(one, _)| name(&one) == name(response))
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            error(500, "InternalFailure", "No"),
            error(503, "ServiceUnavailable", "No"),
            error(400, "SomethingNew", "No"),
            Response::new(403, "<html>a firewall</html>"),
            Response::new(200, "{}"),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        let account = |enabled: bool, sent: f64| {
            let quota =
                json!({"Max24HourSend": 200.0, "SentLast24Hours": sent, "MaxSendRate": 1.0});
            let body = json!({"SendingEnabled": enabled, "ProductionAccessEnabled": true, "SendQuota": quota});
            Response::new(200, body.to_string())
        };
        vec![
            (error(403, "UnrecognizedClientException", "ann@shop.example"), "access key"),
            (error(403, "InvalidSignatureException", "ann@shop.example"), "clock"),
            (account(false, 0.0), "paused"),
            (account(true, 200.0), "quota"),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
            (error(500, "InternalFailure", "ann@shop.example"), "http 500"),
        ]
    }
}
