//! Signals: whatever anybody sends, read tolerantly.

use crate::activities::Evidence;
use crate::operation::{Event, Verdict};
use serde_json::Value;
use std::collections::HashMap;
use temporalio_common::data_converters::{
    PayloadConversionError, SerializationContext, TemporalDeserializable, TemporalSerializable,
};
use temporalio_common::protos::temporal::api::common::v1::Payload;

/// The longest `by` or `reason` that is kept, in characters.
const WORDS_MAX: usize = 500;

/// What a signal carries: any JSON. Whatever else somebody sends (nothing at all, several values,
/// bytes) reads as `null`: a payload that cannot be decoded would fail the workflow's task again and
/// again, and nothing could get through to it any more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anything(pub Value);

impl From<Value> for Anything {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl TemporalSerializable for Anything {
    fn to_payload(&self, _: &SerializationContext<'_>) -> Result<Payload, PayloadConversionError> {
        let data = serde_json::to_vec(&self.0)
            .map_err(|error| PayloadConversionError::EncodingError(error.into()))?;
        let metadata = HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]);
        Ok(Payload { metadata, data, ..Payload::default() })
    }
}

impl TemporalDeserializable for Anything {
    fn from_payload(
        _: &SerializationContext<'_>,
        payload: Payload,
    ) -> Result<Self, PayloadConversionError> {
        Ok(Self(serde_json::from_slice(&payload.data).unwrap_or_default()))
    }

    fn from_payloads(
        context: &SerializationContext<'_>,
        payloads: Vec<Payload>,
    ) -> Result<Self, PayloadConversionError> {
        match <[Payload; 1]>::try_from(payloads) {
            Ok([payload]) => Self::from_payload(context, payload),
            Err(_) => Ok(Self::default()),
        }
    }
}

/// A signal on its way to the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// What happened.
    pub event: Event,
    /// Who says so.
    pub by: String,
    /// In their words.
    pub reason: Option<String>,
    /// The proof of evidence.
    pub proof: Option<String>,
}

impl Letter {
    /// Evidence from digestd's own worker.
    #[must_use]
    pub fn evidence(Evidence { event, proof }: Evidence) -> Self {
        Self { event, by: "late answer".to_owned(), reason: None, proof: Some(proof) }
    }
}

/// Reads a verdict: `{"verdict": "delivered" | "not_delivered" | "abandon", "attempt": 1,
/// "by": "…", "reason": "…"}`.
///
/// # Errors
/// What is wrong with it, without quoting it: it may hold anything.
pub fn verdict(payload: &Value) -> Result<Letter, String> {
    let Value::Object(fields) = payload else {
        return Err("it is not a JSON object".to_owned());
    };
    let verdict = match fields.get("verdict").and_then(Value::as_str) {
        Some("delivered") => Verdict::Delivered,
        Some("not_delivered") => Verdict::NotDelivered,
        Some("abandon") => Verdict::Abandon,
        _ => return Err("\"verdict\" is not delivered, not_delivered or abandon".to_owned()),
    };
    let attempt = match fields.get("attempt") {
        None | Some(Value::Null) => None,
        Some(number) => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
            Some(number.ok_or("\"attempt\" is not the number of an attempt")?)
        }
    };
    let by = words(fields.get("by"), "by")?.unwrap_or_else(|| "signal".to_owned());
    let reason = words(fields.get("reason"), "reason")?;
    Ok(Letter { event: Event::Judged { verdict, attempt }, by, reason, proof: None })
}

/// An operator's own words.
///
/// # Errors
/// When they are not text, too long, or contain an `@`: no address may get into the engine.
fn words(value: Option<&Value>, name: &str) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => check_words(text, name).map(|()| Some(text.clone())),
        Some(_) => Err(format!("\"{name}\" is not text")),
    }
}

/// Checks an operator's own words before they go into the ledger or the engine.
///
/// # Errors
/// When they are too long or contain an `@` or a phone number with its `+`.
pub fn check_words(text: &str, name: &str) -> Result<(), String> {
    if text.contains('@') {
        return Err(format!(
            "{name} contains '@': no address may get into the engine or the audit"
        ));
    }
    if has_number(text) {
        return Err(format!(
            "{name} contains a phone number: no address may get into the engine or the audit"
        ));
    }
    if text.contains('\0') {
        return Err(format!("{name} contains a NUL character, which databases don't store"));
    }
    if text.chars().count() > WORDS_MAX {
        return Err(format!("{name} is longer than {WORDS_MAX} characters"));
    }
    Ok(())
}

/// Whether a phone number in the international form stands in `text`, however it is set.
fn has_number(text: &str) -> bool {
    /// The shortest numbers have as many digits.
    const DIGITS_MIN: usize = 7;
    let part = |c: &char| c.is_ascii_digit() || " -./()".contains(*c);
    let digits = |rest: &str| rest.chars().take_while(part).filter(char::is_ascii_digit).count();
    text.split('+').skip(1).any(|rest| digits(rest) >= DIGITS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_verdict_is_read() {
        let letter = verdict(&json!({"verdict": "not_delivered", "attempt": 2, "by": "ann"}));
        let event = Event::Judged { verdict: Verdict::NotDelivered, attempt: Some(2) };
        assert_eq!(letter, Ok(Letter { event, by: "ann".to_owned(), reason: None, proof: None }));
        let letter = verdict(&json!({"verdict": "abandon"})).unwrap();
        assert_eq!(letter.event, Event::Judged { verdict: Verdict::Abandon, attempt: None });
    }

    #[test]
    fn nonsense_is_refused_without_being_quoted() {
        for payload in [
            json!("nonsense"),
            json!(null),
            json!([]),
            json!({}),
            json!({"verdict": "yes"}),
            json!({"verdict": 1}),
            json!({"verdict": "delivered", "attempt": "1"}),
            json!({"verdict": "delivered", "attempt": -1}),
            json!({"verdict": "delivered", "attempt": 4_294_967_296_u64}),
            json!({"verdict": "delivered", "by": 7}),
            json!({"verdict": "delivered", "reason": "asked ann@shop.example"}),
            json!({"verdict": "delivered", "reason": "x\0"}),
            json!({"verdict": "delivered", "reason": "x".repeat(501)}),
        ] {
            let error = verdict(&payload).unwrap_err();
            assert!(!error.contains("ann@"), "{error}");
        }
    }

    #[test]
    fn a_persons_words_hold_no_address_and_no_number() {
        for private in
            ["ann@shop.example", "+4915112345678", "rang +49 (151) 1234-5678", "a+1/234.567"]
        {
            let error = check_words(private, "reason").unwrap_err();
            assert!(error.starts_with("reason contains ") && !error.contains(private), "{error}");
        }
        for words in
            ["found in the log of 2026-10-12 09:00:00", "1+1 = 2", "customer 12345678", "+"]
        {
            assert_eq!(check_words(words, "reason"), Ok(()), "{words}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}") {
            if let Ok(payload) = serde_json::from_str::<Value>(&text) {
                let _ = verdict(&payload);
            }
            let _ = verdict(&Value::String(text));
        }
    }
}
