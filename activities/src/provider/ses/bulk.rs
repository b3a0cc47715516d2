//! [Many messages in one request](https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendBulkEmail.html):
//! SES builds each from one template, whose subject, text and HTML are one place each, filled by the
//! entry's own data. SES does not escape what it fills in
//! (<https://docs.aws.amazon.com/ses/latest/dg/send-personalized-email-advanced.html>), so what
//! arrives is what was rendered. Each entry has an outcome of its own, in the order of the request:
//!
//! | status of an entry | means |
//! | --- | --- |
//! | `SUCCESS` with a `MessageId` | accepted |
//! | `MAIL_FROM_DOMAIN_NOT_VERIFIED`, `CONFIGURATION_SET_NOT_FOUND`, `TEMPLATE_NOT_FOUND`, `ACCOUNT_SUSPENDED`, `ACCOUNT_DAILY_QUOTA_EXCEEDED`, `INVALID_SENDING_POOL_NAME`, `ACCOUNT_SENDING_PAUSED`, `CONFIGURATION_SET_SENDING_PAUSED` | not sent: `configuration` |
//! | `MESSAGE_REJECTED`, `INVALID_PARAMETER` | not sent: as alone, by what it says |
//! | `ACCOUNT_THROTTLED` | not sent: `rate_limited` |
//! | `TRANSIENT_FAILURE` | not sent: `overloaded` |
//! | `FAILED`, and everything else | unknown |

use super::super::Reply;
use super::super::api::{read, told};
use super::super::batch::BatchReply;
use super::super::exchange::Answer;
use super::table::{class, reply};
use super::{Destination, Tag};
use crate::message::FrozenMessage;
use data_encoding::BASE64;
use digest_workflows::operation::{Failure, FailureClass};
use hyper::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many messages a request may have.
pub const BATCH_MAX: u32 = 50;

/// Where such requests go.
pub(super) const PATH: &str = "/v2/email/outbound-bulk-emails";

/// How many bytes the entries of a request may have together: SES takes a megabyte of input.
pub(super) const BYTES_MAX: usize = 900_000;

/// How long the data of one entry may be
/// (<https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_ReplacementTemplate.html>).
const DATA_CHARS_MAX: usize = 262_144;

/// How many headers an entry may have, and how long the value of one may be, in ASCII
/// (<https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_MessageHeader.html>).
const HEADERS_MAX: usize = 15;
const HEADER_CHARS_MAX: usize = 870;

/// How many bytes of a name go into one encoded word, which has at most 75 characters (RFC 2047,
/// section 2).
const WORD_BYTES_MAX: usize = 45;

/// Headers that SES sets itself.
const OWN_HEADERS: [&str; 2] = ["Message-ID", "Date"];

/// Where an item goes on with its entry; no line of JSON has one.
const SEPARATOR: u8 = b'\n';

/// What all entries of a request have in common.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Common<'a> {
    from_email_address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_set_name: Option<&'a str>,
    default_content: DefaultContent,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DefaultContent {
    template: Template,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Template {
    template_content: Places,
    template_data: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Places {
    subject: &'static str,
    text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<'a> {
    destination: Destination<'a>,
    replacement_email_content: ReplacementEmailContent,
    replacement_headers: Vec<Header<'a>>,
    replacement_tags: [Tag; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReplacementEmailContent {
    replacement_template: ReplacementTemplate,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReplacementTemplate {
    /// JSON, as text.
    replacement_template_data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Header<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct Data<'a> {
    subject: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
}

/// The item of `message`, which carries `tag`: what its request begins with, and its entry. `None`
/// where it is more than an entry may be.
pub(super) fn item(
    tag: Tag,
    message: &FrozenMessage,
    configuration_set: Option<&str>,
) -> Result<Option<Vec<u8>>, Failure> {
    let html = message.html.as_ref().map(|html| html.reveal().as_str());
    let places =
        Places { subject: "{{subject}}", text: "{{text}}", html: html.map(|_| "{{html}}") };
    let template = Template { template_content: places, template_data: "{}" };
    let from = encoded(&message.from);
    let common = Common {
        from_email_address: &from,
        configuration_set_name: configuration_set,
        default_content: DefaultContent { template },
    };
    let data = Data { subject: message.subject.reveal(), text: message.text.reveal(), html };
    let malformed = |_| Failure::new(FailureClass::Schema, "ses message malformed");
    let data = serde_json::to_string(&data).map_err(malformed)?;
    let headers = message.headers.reveal().iter();
    let headers = headers.filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()));
    let headers: Vec<Header<'_>> = headers.map(|(name, value)| Header { name, value }).collect();
    let fits = |header: &Header<'_>| {
        header.value.len() <= HEADER_CHARS_MAX
            && header.value.bytes().all(|b| (32..127).contains(&b))
    };
    let headers_fit = headers.len() <= HEADERS_MAX && headers.iter().all(fits);
    if data.chars().count() > DATA_CHARS_MAX || !headers_fit {
        return Ok(None);
    }
    let entry = Entry {
        destination: Destination { to_addresses: [message.recipient.reveal()] },
        replacement_email_content: ReplacementEmailContent {
            replacement_template: ReplacementTemplate { replacement_template_data: data },
        },
        replacement_headers: headers,
        replacement_tags: [tag],
    };
    let mut item = serde_json::to_vec(&common).map_err(malformed)?;
    item.push(SEPARATOR);
    item.extend(serde_json::to_vec(&entry).map_err(malformed)?);
    Ok(Some(item))
}

/// `from` with a name that is not ASCII in encoded words, as SES wants it.
fn encoded(from: &str) -> String {
    let Some((name, address)) = from.rsplit_once('<').filter(|(name, _)| !name.is_ascii()) else {
        return from.to_owned();
    };
    let mut words = vec![String::new()];
    for character in name.trim().trim_matches('"').chars() {
        match words.last_mut() {
            Some(word) if word.len() + character.len_utf8() <= WORD_BYTES_MAX => {
                word.push(character);
            }
            _ => words.push(character.to_string()),
        }
    }
    let word = |word: &String| format!("=?UTF-8?B?{}?=", BASE64.encode(word.as_bytes()));
    let words: Vec<String> = words.iter().map(word).collect();
    format!("{} <{address}", words.join(" "))
}

/// What the request of an item begins with.
pub(super) fn common(item: &[u8]) -> &[u8] {
    item.split(|byte| *byte == SEPARATOR).next().unwrap_or_default()
}

/// The request of these items, which all have the same beginning.
pub(super) fn request(items: &[&[u8]]) -> Vec<u8> {
    let head = items.first().map(|item| common(item)).unwrap_or_default();
    let entries: Vec<&[u8]> =
        items.iter().map(|item| item.get(common(item).len() + 1..).unwrap_or_default()).collect();
    let mut bytes = head.strip_suffix(b"}").unwrap_or_default().to_vec();
    bytes.extend(b",\"BulkEmailEntries\":[");
    bytes.extend(entries.join(&b','));
    bytes.extend(b"]}");
    bytes
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    bulk_email_entry_results: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct EntryResult {
    status: String,
    error: String,
    message_id: Option<String>,
}

/// What `answer`, which came at `now`, says about the `members` of a request.
pub(super) fn replies(answer: &Answer, now: Timestamp, members: usize) -> BatchReply {
    if answer.status != StatusCode::OK {
        return BatchReply::Whole(reply(answer, now));
    }
    match read::<Results>(answer) {
        Some(Results { bulk_email_entry_results: results }) if results.len() == members => {
            BatchReply::Each(results.into_iter().map(entry_reply).collect())
        }
        _ => BatchReply::Whole(Reply::Unknown("http 200 without an entry for each".to_owned())),
    }
}

/// The same of a message that goes alone.
pub(super) fn only_reply(answer: &Answer, now: Timestamp) -> Reply {
    match replies(answer, now, 1) {
        BatchReply::Whole(reply) => reply,
        BatchReply::Each(replies) => replies
            .into_iter()
            .next()
            .unwrap_or_else(|| Reply::Unknown("http 200 without an entry".to_owned())),
    }
}

/// What one entry of an answer says about its message.
fn entry_reply(entry: serde_json::Value) -> Reply {
    let EntryResult { status, error, message_id } =
        serde_json::from_value(entry).unwrap_or_default();
    let bad_request = |name| class(StatusCode::BAD_REQUEST, name, &error);
    let class = match (status.as_str(), message_id) {
        ("SUCCESS", Some(id)) => return Reply::Accepted { message_id: Some(id) },
        (
            "MAIL_FROM_DOMAIN_NOT_VERIFIED"
            | "CONFIGURATION_SET_NOT_FOUND"
            | "TEMPLATE_NOT_FOUND"
            | "ACCOUNT_SUSPENDED"
            | "ACCOUNT_DAILY_QUOTA_EXCEEDED"
            | "INVALID_SENDING_POOL_NAME"
            | "ACCOUNT_SENDING_PAUSED"
            | "CONFIGURATION_SET_SENDING_PAUSED",
            _,
        ) => Some(FailureClass::Configuration),
        ("MESSAGE_REJECTED", _) => bad_request("MessageRejected"),
        ("INVALID_PARAMETER", _) => bad_request("BadRequestException"),
        ("ACCOUNT_THROTTLED", _) => Some(FailureClass::RateLimited),
        ("TRANSIENT_FAILURE", _) => Some(FailureClass::Overloaded),
        _ => None,
    };
    let code = told(StatusCode::OK, &status);
    match class {
        Some(class) => Reply::NotSent(Failure::new(class, code)),
        None => Reply::Unknown(code),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::examples::{key, message};
    use super::super::tag;
    use super::*;

    #[test]
    fn a_name_that_is_not_ascii_goes_in_encoded_words() {
        assert_eq!(encoded("Shop <a@shop.example>"), "Shop <a@shop.example>");
        assert_eq!(encoded("a@shop.example"), "a@shop.example");
        assert_eq!(
            encoded("\"Söhne, GmbH\" <a@shop.example>"),
            "=?UTF-8?B?U8O2aG5lLCBHbWJI?= <a@shop.example>"
        );
        let long = encoded(&format!("{} <a@shop.example>", "ö".repeat(60)));
        let words: Vec<&str> = long.split(' ').collect();
        assert_eq!(words.len(), 4, "{long}");
        assert!(words.iter().all(|word| word.len() <= 75 && word.is_ascii()), "{long}");
    }

    #[test]
    fn what_is_more_than_an_entry_may_be_goes_alone() {
        let fits = |message: &FrozenMessage| item(tag(&key()), message, None).unwrap().is_some();
        assert!(fits(&message()));
        let mut long = message();
        long.text = long.text.map(|text| text.repeat(DATA_CHARS_MAX));
        assert!(!fits(&long));
        let mut header = message();
        header.headers = header.headers.map(|headers| {
            let more = ("X-Long".to_owned(), "x".repeat(HEADER_CHARS_MAX + 1));
            headers.iter().cloned().chain([more]).collect()
        });
        assert!(!fits(&header));
    }

    #[test]
    fn a_request_is_one_object_whatever_its_items_hold() {
        let one = item(tag(&key()), &message(), Some("weekly")).unwrap().unwrap();
        let request: serde_json::Value = serde_json::from_slice(&request(&[&one, &one])).unwrap();
        assert_eq!(request["ConfigurationSetName"], "weekly");
        assert_eq!(request["BulkEmailEntries"].as_array().unwrap().len(), 2);
    }
}
