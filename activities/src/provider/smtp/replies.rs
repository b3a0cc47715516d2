//! What a reply means: a pure function of the phase, the code (RFC 5321, section 4.2), the enhanced
//! code (RFC 3463, RFC 7372, RFC 7504) and, for throttling and quotas that share a code, the wording.
//! The wording is read and never kept, since it may quote an address.

use super::stop::Phase;
use crate::provider::Reply;
use digest_workflows::operation::{Failure, FailureClass};

/// A reply of the server.
pub(super) type Answer = smtp_proto::Response<String>;

/// What smtp-proto makes of an enhanced code's number above 254, such as Microsoft's 5.7.708.
const DETAIL_BEYOND: u8 = 255;

/// The verdict on a final reply, read alone after the whole end of data was written. Only a 2yz is
/// an acceptance, and only a 4yz or 5yz is a refusal: a 421 may have been sent at any time, and says
/// nothing about the message (RFC 5321, sections 3.8 and 4.2.5).
pub(super) fn verdict(answer: &Answer) -> Reply {
    match answer.code {
        200..=299 => Reply::Accepted { message_id: queue_id(&answer.message) },
        421 => Reply::Unknown("smtp 421 after dot".to_owned()),
        400..=599 => Reply::NotSent(failure(Phase::Dot, answer)),
        code => Reply::Unknown(format!("smtp {code} after dot")),
    }
}

/// A reply that ends a delivery, as a failure.
pub(super) fn failure(phase: Phase, answer: &Answer) -> Failure {
    Failure::new(classify(phase, answer), code(phase, answer))
}

/// The short code of a reply, such as `smtp rcpt 550 5.1.1`.
fn code(phase: Phase, answer: &Answer) -> String {
    let basic = format!("smtp {} {}", phase.name(), answer.code);
    match answer.esc {
        [0, 0, 0] => basic,
        [class, subject, DETAIL_BEYOND] => format!("{basic} {class}.{subject}.x"),
        [class, subject, detail] => format!("{basic} {class}.{subject}.{detail}"),
    }
}

/// The class of a reply that is not the one the phase hopes for. A positive reply out of place means
/// that the two sides no longer agree where they are, which a new connection mends.
fn classify(phase: Phase, answer: &Answer) -> FailureClass {
    let wording = Wording::of(&answer.message);
    let detail = (answer.esc[1], answer.esc[2]);
    match answer.code {
        400..=499 => temporary(answer.code, detail, &wording),
        500..=599 if phase < Phase::Mail => FailureClass::Configuration,
        500..=599 => permanent(phase, answer.code, detail, &wording),
        _ => FailureClass::Transport,
    }
}

fn temporary(code: u16, detail: (u8, u8), wording: &Wording) -> FailureClass {
    // RFC 4954, section 6: a password transition is needed.
    if code == 432 {
        return FailureClass::Configuration;
    }
    // x.2.2 is the recipient's mailbox, whatever it says about a quota.
    if wording.account_is_used_up() && detail != (2, 2) {
        return FailureClass::Configuration;
    }
    if wording.is_throttling() {
        return FailureClass::RateLimited;
    }
    FailureClass::Overloaded
}

fn permanent(phase: Phase, code: u16, detail: (u8, u8), wording: &Wording) -> FailureClass {
    let ours = matches!(code, 523 | 530 | 534 | 535 | 538)
        || wording.account_is_refused()
        || (wording.account_is_used_up() && detail.0 != 2);
    if ours {
        return FailureClass::Configuration;
    }
    match detail {
        // The sender's address, the account's limit, authentication, encryption, DKIM, SPF, reverse
        // DNS, DMARC: about us at any phase.
        (1, 7 | 8) | (4, 5) | (7, 8..=11 | 13 | 14 | 20..=27 | DETAIL_BEYOND) => {
            FailureClass::Configuration
        }
        // In MAIL every address is ours, and so is every policy; afterwards they are the recipient's.
        (1 | 7, _) if phase == Phase::Mail => FailureClass::Configuration,
        (1, 0..=4 | 6 | 10) => FailureClass::Recipient,
        // Mailbox disabled or full for good; a changed owner (RFC 7293).
        (2, 0..=2 | 4) | (7, 17 | 18) if phase != Phase::Mail => FailureClass::Recipient,
        // No route to the domain; an address beyond what the next server takes.
        (4, 1 | 4) | (6, 7) if phase == Phase::Rcpt => FailureClass::Recipient,
        // Too big for the mailbox or the system; content that cannot be taken.
        (2, 3) | (3, 4) | (6, _) => FailureClass::Schema,
        // Too many recipients cannot be the fault of one; RFC 5321, section 4.5.3.1.10 has it retried.
        (5, 3) => FailureClass::Overloaded,
        (7, _) => FailureClass::Rejected,
        _ => by_code(phase, code, wording),
    }
}

/// The class where the enhanced code is absent or says nothing: the phase tells whose fault it is.
fn by_code(phase: Phase, code: u16, wording: &Wording) -> FailureClass {
    match (phase, code) {
        (Phase::Mail, 503) if wording.mentions(&["auth"]) => FailureClass::Configuration,
        // The address is all that varies in RCPT.
        (Phase::Rcpt, 501 | 521 | 550..=553 | 556) => FailureClass::Recipient,
        (_, 500..=504 | 552 | 555) => FailureClass::Schema,
        (Phase::Mail, _) => FailureClass::Configuration,
        _ => FailureClass::Rejected,
    }
}

/// The words of a reply, in lower case and without whatever might be an address: a sender called
/// `daily-digest@shop.example` must not read as a daily limit.
struct Wording(String);

impl Wording {
    fn of(text: &str) -> Self {
        let words: Vec<String> = text
            .split_whitespace()
            .filter(|word| !word.contains('@'))
            .map(str::to_ascii_lowercase)
            .collect();
        Self(words.join(" "))
    }

    fn mentions(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.0.contains(phrase))
    }

    /// Told to slow down, as by SES: `Throttling failure: Maximum sending rate exceeded`.
    fn is_throttling(&self) -> bool {
        self.mentions(&[
            "throttl",
            "rate limit",
            "ratelimit",
            "rate exceeded",
            "sending rate",
            "unusual rate",
            "at a rate",
            "too many",
            "too fast",
            "too quickly",
            "slow down",
        ])
    }

    /// Nothing more goes today, as by SES: `Throttling failure: Daily message quota exceeded`.
    fn account_is_used_up(&self) -> bool {
        let used_up = self.mentions(&["sending quota", "sending limit"])
            || (self.mentions(&["daily"]) && self.mentions(&["quota", "limit"]));
        used_up && !self.mentions(&["receiv"])
    }

    /// The account may not send this, whoever it is for: relaying not allowed, or SES's unverified
    /// identities and paused accounts.
    fn account_is_refused(&self) -> bool {
        self.mentions(&[
            "not verified",
            "sending paused",
            "relay access denied",
            "relay denied",
            "relaying denied",
            "relaying not allowed",
            "relay not permitted",
            "not permitted to relay",
            "unable to relay",
        ])
    }
}

/// The queue id in the text of a positive final reply, if one can be told. Servers write it as
/// `queued as ID`, `id=ID` or just among words; whatever contains an `@` is never taken.
fn queue_id(text: &str) -> Option<String> {
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !word.contains('@'))
        .map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()))
        .collect();
    let after = |start: &[&str]| {
        let at = words.windows(start.len()).position(|seen| {
            seen.iter().zip(start).all(|(word, wanted)| word.eq_ignore_ascii_case(wanted))
        })?;
        words.get(at + start.len()).copied().filter(|word| is_id(word))
    };
    let assigned = || {
        words.iter().find_map(|word| {
            let (name, value) = word.split_once('=')?;
            (name.to_ascii_lowercase().ends_with("id") && is_id(value)).then_some(value)
        })
    };
    let longest = || {
        let ids = words.iter().copied().filter(|word| is_id(word));
        ids.max_by_key(|word| word.len())
    };
    after(&["queued", "as"])
        .or_else(|| after(&["with", "id"]))
        .or_else(assigned)
        .or_else(longest)
        .map(str::to_owned)
}

fn is_id(word: &str) -> bool {
    (6..=64).contains(&word.len())
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}

#[cfg(test)]
mod tests;
