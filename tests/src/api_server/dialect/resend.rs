//! Resend: <https://resend.com/docs/api-reference>.

use super::{Dialect, Part, Request, Response, Taken, header_lines, part, text};
use FailureClass::{Configuration, RateLimited, Recipient, Schema};
use digest_activities::provider::Provider;
use digest_activities::provider::api::ApiSettings;
use digest_workflows::operation::{FailureClass, OperationKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// Resend's API.
#[derive(Clone, Copy, Debug)]
pub struct Resend;

/// The refusal of a recipient.
const INVALID_TO: &str =
    r#"{"statusCode":422,"name":"validation_error","message":"Invalid `to` field."}"#;

fn error(status: u16, name: &str) -> Response {
    let body =
        format!(r#"{{"statusCode":{status},"name":"{name}","message":"No, ann@shop.example"}}"#);
    Response::new(status, body)
}

impl Dialect for Resend {
    fn kind(&self) -> &'static str {
        "resend"
    }

    fn adapter(&self, settings: &ApiSettings) -> Result<Arc<dyn Provider>, String> {
        digest_activities::provider::resend::Resend::new(settings)
            .map(|resend| Arc::new(resend) as Arc<dyn Provider>)
            .map_err(|error| error.to_string())
    }

    fn key(&self, request: &Request) -> Option<String> {
        let sends = request.method == "POST" && request.path() == "/emails";
        sends.then(|| request.header("idempotency-key").unwrap_or_default().to_owned())
    }

    fn expected(&self, key: &OperationKey) -> String {
        key.to_string()
    }

    fn batch(&self, request: &Request) -> Option<Vec<(String, Value)>> {
        if request.path() != "/emails/batch" {
            return None;
        }
        let body = request.json();
        let of = |item: &Value| (text(&item["headers"]["X-Operation-Key"]), item.clone());
        Some(body.as_array().into_iter().flatten().map(of).collect())
    }

    fn batch_answer(&self, ids: &[Option<String>]) -> Response {
        let all: Option<Vec<Value>> =
            ids.iter().map(|id| Some(json!({"id": id.as_ref()?}))).collect();
        match all {
            Some(data) => Response::new(200, json!({"data": data}).to_string()),
            None => Response::new(422, INVALID_TO),
        }
    }

    fn refuses(&self, message: &Value) -> bool {
        text(&message["to"][0]).starts_with("bad")
    }

    fn content(&self, request: &Request) -> Vec<Part> {
        let body = request.json();
        let bearer = request.header("authorization").unwrap_or_default();
        vec![
            part("authorization", bearer.split(' ').next().unwrap_or_default().to_owned(), |_| {
                "Bearer".to_owned()
            }),
            part("from", text(&body["from"]), |message| message.from.clone()),
            part("to", body["to"].to_string(), |message| {
                format!("[\"{}\"]", message.recipient.reveal())
            }),
            part("subject", text(&body["subject"]), |message| message.subject.reveal().clone()),
            part("text", text(&body["text"]), |message| message.text.reveal().clone()),
            part("html", text(&body["html"]), |message| {
                message.html.as_ref().map(|html| html.reveal().clone()).unwrap_or_default()
            }),
            part("headers", header_lines(&body["headers"]), super::without_own_headers),
        ]
    }

    fn accepted(&self, id: &str) -> Response {
        Response::new(200, format!(r#"{{"id":"{id}"}}"#))
    }

    fn question(&self, request: &Request, _taken: &[Taken]) -> Response {
        match request.path() {
            "/domains" => Response::new(
                200,
                r#"{"data":[{"name":"shop.example","status":"verified"},{"name":"new.example","status":"pending"}]}"#,
            ),
            _ => error(404, "not_found"),
        }
    }

    fn again(&self, first: &Taken, request: &Request) -> Option<Response> {
        Some(if first.request.body == request.body {
            self.accepted(&first.id)
        } else {
            error(409, "invalid_idempotent_request")
        })
    }

    fn refusals(&self) -> Vec<(Response, FailureClass)> {
        let mut all = vec![
            (error(401, "missing_api_key"), Configuration),
            (error(401, "restricted_api_key"), Configuration),
            (error(403, "invalid_api_key"), Configuration),
            (error(403, "suspended_api_key"), Configuration),
            (error(403, "invalid_permission"), Configuration),
            (error(403, "validation_error"), Configuration),
            (error(429, "daily_quota_exceeded"), Configuration),
            (error(429, "monthly_quota_exceeded"), Configuration),
            (error(429, "rate_limit_exceeded"), RateLimited),
            (Response::new(429, "<html>slow down</html>"), RateLimited),
            (Response::new(422, INVALID_TO), Recipient),
            (Response::new(400, INVALID_TO), Recipient),
        ];
        for status in [400, 422] {
            for name in [
                "validation_error",
                "missing_required_field",
                "invalid_parameter",
                "invalid_idempotency_key",
            ] {
                all.push((error(status, name), Schema));
            }
        }
        all
    }

    fn is_documented(&self, response: &Response) -> bool {
        let name = |response: &Response| {
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            (response.status, body["name"].clone())
        };
        self.refusals().iter().any(|(one, _)| name(one) == name(response))
    }

    fn ambiguous(&self) -> Vec<Response> {
        vec![
            error(409, "concurrent_idempotent_requests"),
            error(409, "resource_locked"),
            error(409, "invalid_idempotent_request"),
            error(500, "application_error"),
            error(500, "internal_server_error"),
            error(503, "service_unavailable"),
            error(422, "something_new"),
        ]
    }

    fn unreadable_is_accepted(&self) -> bool {
        false
    }

    fn bad_accounts(&self) -> Vec<(Response, &'static str)> {
        vec![
            (error(401, "missing_api_key"), "API key"),
            (error(403, "invalid_api_key"), "API key"),
            (error(403, "suspended_api_key"), "suspended"),
            (error(429, "daily_quota_exceeded"), "quota"),
            (Response::new(200, r#"{"data":[]}"#), "shop.example"),
            (
                Response::new(200, r#"{"data":[{"name":"shop.example","status":"pending"}]}"#),
                "not verified",
            ),
            (Response::new(200, "<html>hello</html>"), "provider.url"),
        ]
    }
}
