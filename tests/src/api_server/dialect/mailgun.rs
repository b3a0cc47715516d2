//! Mailgun: <https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun>.

use super::{Dialect, Part, Request, Response, Taken, part};
use FailureClass::{Configuration, RateLimited, Recipient, Schema};
use digest_activities::provider::Provider;
use digest_activities::provider::api::ApiSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// Mailgun's API.
#[derive(Clone, Copy, Debug)]
pub struct Mailgun;

fn error(status: u16, message: &str) -> Response {
    Response::new(status, json!({ "message": message }).to_string())
}

/// A field of the multipart form (RFC 7578) in `request`.
fn field(request: &Request, name: &str) -> String {
    let kind = request.header("content-type").unwrap_or_default();
    let Some(boundary) = kind.strip_prefix("multipart/form-data; boundary=") else {
        return String::new();
    };
    let body = String::from_utf8_lossy(&request.body);
    let delimiter = format!("--{boundary}");
    let marker = format!("; name=\"{name}\"");
    let found = body.split(&delimiter).find(|part| {
        part.lines().nth(1).is_some_and(|line| {
            line.starts_with("Content-Disposition: form-data") && line.contains(&marker)
        })
    });
    let value = found.and_then(|part| part.split_once("\r\n\r\n")).map(|(_, value)| value);
    value.and_then(|value| value.strip_suffix("\r\n")).unwrap_or_default().to_owned()
}

fn event(key: &str, id: &str) -> Value {
    json!({
        "event": "accepted",
        "user-variables": {"operation_key": key},
        "message": {"headers": {"message-id": id}},
    })
}

impl Dialect for Mailgun {
    fn kind(&self) -> &'static str {
        "mailgun"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        digest_activities::provider::mailgun::Mailgun::new(settings, None)
            .map(|mailgun| Arc::new(mailgun) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == "/v3/shop.example/messages.mime";
        sends.then(|| field(request, "v:operation_key"))
    }

    fn expected(&self, key: &OperationKey) -> String {
        key.to_string()
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let basic = request.header("authorization").unwrap_or_default();
        let credential = basic.strip_prefix("Basic ").unwrap_or_default().as_bytes();
        let credential = data_encoding::BASE64.decode(credential).unwrap_or_default();
        let user = credential.split(|byte| *byte == b':').next().unwrap_or_default();
        vec![
            part("user", String::from_utf8_lossy(user).into_owned(), |_| "api".to_owned()),
            part("to", field(request, "to"), |message| message.recipient.reveal().clone()),
            part("message", field(request, "message"), |message| {
                String::from_utf8_lossy(message.mime.reveal()).into_owned()
            }),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        let body = json!({"id": format!("<{id}>"), "message": "Queued. Thank you."});
        Response::new(200, body.to_string())
    }

    /// The first page of events holds another's alone; what was taken comes on the second.
    fn question(&self, request: &Request, taken: &[Taken]) -> Response {
        let page = "/v3/shop.example/events/";
        let body = match request.path() {
            "/v4/domains/shop.example" => {
                json!({"domain": {"name": "shop.example", "state": "active", "type": "custom"}})
            }
            "/v3/shop.example/events" => {
                let query = request.query();
                let tag =
                    query.iter().find(|(name, _)| name == "tags").map(|(_, tag)| tag.as_str());
                let next = format!("https://api.mailgun.net{page}{}", tag.unwrap_or_default());
                json!({"items": [event("another", "a")], "paging": {"next": next}})
            }
            path if path.starts_with(page) => {
                let tag = path.strip_prefix(page).unwrap_or_default();
                let tagged = taken.iter().filter(|taken| field(&taken.request, "o:tag") == tag);
                let items: Vec<Value> = tagged.map(|taken| event(&taken.key, &taken.id)).collect();
                json!({"items": items, "paging": {}})
            }
            _ => return error(404, "page not found"),
        };
        Response::new(200, body.to_string())
    }

    fn again(&self, _first: &Taken, _request: &Request) -> Option<Response> {
        None
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        vec![
            (error(400, "'to' parameter is not a valid address: ann@shop.example"), Recipient),
            (error(400, "'from' parameter is not a valid address"), Schema),
            (error(400, "The domain is unverified and requires DNS configuration."), Configuration),
            (error(400, "Domain shop.example is disabled"), Configuration),
            (Response::new(401, "Forbidden"), Configuration),
            (error(402, "Request failed"), Configuration),
            (error(403, "Free accounts are for test purposes only"), Configuration),
            (error(404, "Domain not found: shop.example"), Configuration),
            (Response::new(413, "<html>nginx</html>"), Schema),
            (error(429, "limit exceeded, try again after a while"), RateLimited),
            (Response::new(429, ""), RateLimited),
        ]
    }

    fn is_documented(&self, response: &Response) -> bool {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        response.status == 401
            || ([400, 402, 403, 404].contains(&response.status) && body["message"].is_string())
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            Response::new(200, "Mailgun Magnificent API"),
            error(200, "Queued. Thank you."),
            Response::new(403, "<html>a firewall</html>"),
            error(500, "Internal error, and it may have gone out"),
            error(503, "No"),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        let state = |state: &str| {
            let body = json!({"domain": {"name": "shop.example", "state": state}});
            Response::new(200, body.to_string())
        };
        vec![
            (Response::new(401, "Forbidden"), "API key"),
            (error(404, "Domain not found: ann@shop.example"), "provider.domain"),
            (state("unverified"), "not verified"),
            (state("disabled"), "may not send"),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
        ]
    }
}
