//! SendGrid: <https://www.twilio.com/docs/sendgrid/api-reference>.

use super::{Dialect, Part, Request, Response, Taken, header_lines, part, text};
use FailureClass::{Configuration, RateLimited, Recipient, Schema};
use digest_activities::provider::Provider;
use digest_activities::provider::alias::alias;
use digest_activities::provider::api::ApiSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// SendGrid's API.
#[derive(Clone, Copy, Debug)]
pub struct Sendgrid {
    /// Whether the account has Email Activity.
    pub has_look_up: bool,
}

fn error(status: u16, field: Option<&str>, message: &str) -> Response {
    let body = json!({"errors": [{"message": message, "field": field, "help": null}]});
    Response::new(status, body.to_string())
}

impl Dialect for Sendgrid {
    fn kind(&self) -> &'static str {
        "sendgrid"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        digest_activities::provider::sendgrid::Sendgrid::new(settings, self.has_look_up)
            .map(|sendgrid| Arc::new(sendgrid) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == "/v3/mail/send";
        let key = |body: &Value| text(&body["personalizations"][0]["custom_args"]["operation_key"]);
        sends.then(|| key(&request.json()))
    }

    fn expected(&self, key: &OperationKey) -> String {
        alias(key)
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let body = request.json();
        let bearer = request.header("authorization").unwrap_or_default();
        let to = &body["personalizations"][0]["to"];
        vec![
            part("authorization", bearer.split(' ').next().unwrap_or_default().to_owned(), |_| {
                "Bearer".to_owned()
            }),
            part("from", body["from"].to_string(), |message| {
                json!({"email": message.sender, "name": "Shop & Söhne"}).to_string()
            }),
            part("to", to.to_string(), |message| {
                json!([{"email": message.recipient.reveal()}]).to_string()
            }),
            part("subject", text(&body["subject"]), |message| message.subject.reveal().clone()),
            part("content", body["content"].to_string(), |message| {
                let html = message.html.as_ref().map(|html| html.reveal().clone());
                json!([
                    {"type": "text/plain", "value": message.text.reveal()},
                    {"type": "text/html", "value": html},
                ])
                .to_string()
            }),
            part("headers", header_lines(&body["headers"]), super::without_own_headers),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        Response::new(202, "").with("x-message-id", id)
    }

    fn question(&self, request: &Request, taken: &[Taken]) -> Response {
        let body = match request.path() {
            "/v3/scopes" => json!({"scopes": ["mail.send", "messages.read"]}),
            "/v3/whitelabel/domains" => json!([
                {"domain": "new.example", "valid": false},
                {"domain": "shop.example", "valid": true},
            ]),
            "/v3/verified_senders" => json!({"results": []}),
            "/v3/messages" => {
                let query = request.query();
                let wanted = query.iter().find(|(name, _)| name == "query");
                let matches = |taken: &&Taken| {
                    let filter = format!("unique_args=\"{}\"", taken.key);
                    wanted.is_some_and(|(_, query)| *query == filter)
                };
                let hits: Vec<Value> = taken
                    .iter()
                    .filter(matches)
                    .map(|taken| json!({"msg_id": taken.id, "status": "delivered"}))
                    .collect();
                json!({ "messages": hits })
            }
            path => {
                let id = path.strip_prefix("/v3/messages/").unwrap_or_default();
                match taken.iter().find(|taken| taken.id == id) {
                    Some(taken) => json!({
                        "msg_id": taken.id,
                        "events": [{"event_name": "processed"}],
                        "unique_args": format!("{{'operation_key': '{}'}}", taken.key),
                    }),
                    None => return error(404, None, "not found"),
                }
            }
        };
        Response::new(200, body.to_string())
    }

    fn again(&self, _first: &Taken, _request: &Request) -> Option<Response> {
        None
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        let no = "No, ann@shop.example";
        vec![
            (error(400, Some("personalizations.0.to.0.email"), no), Recipient),
            (error(400, Some("content.0.value"), no), Schema),
            (error(400, None, no), Schema),
            (error(401, None, "The provided authorization grant is invalid"), Configuration),
            (error(401, None, "Maximum credits exceeded"), Configuration),
            (error(403, Some("from"), "no verified Sender Identity"), Configuration),
            (Response::new(413, "<html>nginx</html>"), Schema),
            (error(429, None, "too many requests"), RateLimited),
            (Response::new(429, ""), RateLimited),
        ]
    }

    fn is_documented(&self, response: &Response) -> bool {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        [400, 401, 403].contains(&response.status) && !body["errors"][0].is_null()
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            Response::new(200, "").with("x-message-id", "sandbox"),
            Response::new(202, ""),
            Response::new(401, "<html>who are you</html>"),
            error(404, None, "not found"),
            error(500, None, "No"),
            error(503, None, "No"),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        vec![
            (error(401, None, "The provided authorization grant is invalid"), "valid one"),
            (error(401, None, "Maximum credits exceeded"), "credits"),
            (Response::new(200, r#"{"scopes":["user.read"]}"#), "Mail Send"),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
            (error(500, None, "No, ann@shop.example"), "http 500"),
        ]
    }
}
