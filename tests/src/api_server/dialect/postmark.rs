//! Postmark: <https://postmarkapp.com/developer/api/overview>.

use super::{Dialect, Part, Request, Response, Taken, part, text};
use FailureClass::{Configuration, Overloaded, RateLimited, Recipient, Schema, Suppressed};
use digest_activities::provider::Provider;
use digest_activities::provider::api::ApiSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// Postmark's API.
#[derive(Clone, Copy, Debug)]
pub struct Postmark;

fn error(status: u16, code: u32, message: &str) -> Response {
    Response::new(status, json!({"ErrorCode": code, "Message": message}).to_string())
}

/// What the refusal of a recipient says.
const INVALID_TO: &str = "Invalid 'To' address: 'ann@shop.example'.";

/// The codes that a 422 may have, with their classes.
const CODES: [(u32, FailureClass); 11] = [
    (300, Schema),
    (400, Configuration),
    (401, Configuration),
    (402, Schema),
    (403, Schema),
    (405, Configuration),
    (406, Suppressed),
    (409, Schema),
    (411, Schema),
    (412, Configuration),
    (413, Configuration),
];

impl Dialect for Postmark {
    fn kind(&self) -> &'static str {
        "postmark"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        digest_activities::provider::postmark::Postmark::new(settings, None)
            .map(|postmark| Arc::new(postmark) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == "/email";
        sends.then(|| text(&request.json()["Metadata"]["operation_key"]))
    }

    fn expected(&self, key: &OperationKey) -> String {
        key.to_string()
    }

    fn batch(&self, request: &Request) -> Option<Vec<(String, Value)>> {
        if request.path() != "/email/batch" {
            return None;
        }
        let body = request.json();
        let of = |item: &Value| (text(&item["Metadata"]["operation_key"]), item.clone());
        Some(body.as_array().into_iter().flatten().map(of).collect())
    }

    fn batch_answer(&self, ids: &[Option<String>]) -> Response {
        let entry = |id: &Option<String>| match id {
            Some(id) => json!({"ErrorCode": 0, "Message": "OK", "MessageID": id}),
            None => json!({"ErrorCode": 300, "Message": INVALID_TO}),
        };
        let entries: Vec<Value> = ids.iter().map(entry).collect();
        Response::new(200, Value::from(entries).to_string())
    }

    fn is_per_item(&self) -> bool {
        true
    }

    fn odd_entries(&self) -> Option<Response> {
        let entries = json!([
            {"ErrorCode": 0, "MessageID": "a"}, "?", {"ErrorCode": 0}, {"ErrorCode": 9},
        ]);
        Some(Response::new(200, entries.to_string()))
    }

    fn refuses(&self, message: &Value) -> bool {
        text(&message["To"]).starts_with("bad")
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let body = request.json();
        let headers = body["Headers"].as_array().into_iter().flatten();
        let headers: Vec<String> = headers
            .map(|header| format!("{}: {}", text(&header["Name"]), text(&header["Value"])))
            .collect();
        vec![
            part("from", text(&body["From"]), |message| message.from.clone()),
            part("to", text(&body["To"]), |message| message.recipient.reveal().clone()),
            part("subject", text(&body["Subject"]), |message| message.subject.reveal().clone()),
            part("text", text(&body["TextBody"]), |message| message.text.reveal().clone()),
            part("html", text(&body["HtmlBody"]), |message| {
                message.html.as_ref().map(|html| html.reveal().clone()).unwrap_or_default()
            }),
            part("stream", text(&body["MessageStream"]), |_| "broadcast".to_owned()),
            part("headers", headers.join("\n"), |message| {
                let all = message.headers.reveal().iter().filter(|(name, _)| name != "Date");
                let mut all: Vec<String> =
                    all.map(|(name, value)| format!("{name}: {value}")).collect();
                all.push("X-PM-KeepID: true".to_owned());
                all.join("\n")
            }),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        let body = json!({"To": "a@b.example", "ErrorCode": 0, "Message": "OK", "MessageID": id});
        Response::new(200, body.to_string())
    }

    fn question(&self, request: &Request, taken: &[Taken]) -> Response {
        let body = match request.path() {
            "/server" => json!({"ID": 1, "Name": "Shop", "DeliveryType": "Live"}),
            "/message-streams/broadcast" => json!({"ID": "broadcast", "ArchivedAt": null}),
            "/messages/outbound" => {
                let query = request.query();
                let wanted = query.iter().find(|(name, _)| name == "metadata_operation_key");
                let hits =
                    taken.iter().filter(|taken| wanted.is_some_and(|(_, key)| *key == taken.key));
                let hits: Vec<Value> = hits
                    .map(|taken| {
                        let metadata = json!({"operation_key": taken.key});
                        json!({"MessageID": taken.id, "Status": "Sent", "Metadata": metadata})
                    })
                    .collect();
                json!({"TotalCount": hits.len(), "Messages": hits})
            }
            _ => return Response::new(404, ""),
        };
        Response::new(200, body.to_string())
    }

    fn again(&self, _first: &Taken, _request: &Request) -> Option<Response> {
        None
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        let mut all = vec![
            (error(401, 10, "Bad token"), Configuration),
            (error(422, 300, INVALID_TO), Recipient),
            (error(429, 429, "Slow down"), RateLimited),
            (Response::new(429, ""), RateLimited),
            (error(503, 100, "Maintenance"), Overloaded),
            (Response::new(413, "<html>too large</html>"), Schema),
            (Response::new(415, ""), Schema),
        ];
        all.extend(CODES.map(|(code, class)| (error(422, code, "No, ann@shop.example"), class)));
        all
    }

    fn is_documented(&self, response: &Response) -> bool {
        let code = |response: &Response| {
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            (response.status, body["ErrorCode"].clone())
        };
        let coded = self.refusals().into_iter().filter(|(one, _)| !code(one).1.is_null());
        coded.into_iter().any(|(one, _)| code(&one) == code(response))
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            error(500, 0, "Lost in most cases"),
            error(503, 0, "Unavailable"),
            error(422, 9999, "Something new"),
            error(200, 300, "No"),
            error(401, 0, "Who are you"),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        vec![
            (error(401, 10, "Bad token, ann@shop.example"), "token"),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
            (error(500, 0, ""), "http 500"),
        ]
    }
}
