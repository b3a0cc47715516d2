//! One message as SMTP carries it: an envelope with one recipient, and the text with its dots
//! stuffed.

use super::stop::{Cause, Phase, Stop};
use crate::message::FrozenMessage;
use digest_workflows::operation::{Failure, FailureClass};
use smtp_proto::{EXT_8BIT_MIME, EXT_SIZE, EXT_SMTP_UTF8, EhloResponse};
use std::fmt::Write;

/// Longest address taken: a path of 256 octets without its brackets (RFC 5321, section 4.5.3.1.3).
const ADDRESS_MAX_BYTES: usize = 254;

/// A message that is ready to be written.
pub(super) struct Letter {
    sender: String,
    recipient: String,
    /// How long the message is, unstuffed; what SIZE announces (RFC 1870).
    size: usize,
    has_eight_bit: bool,
    /// The message with its dots stuffed and without its last line end, which the write that ends
    /// the data brings along.
    body: Vec<u8>,
}

impl Letter {
    /// Checks what no server needs to be asked for, and stuffs the dots.
    ///
    /// # Errors
    /// A recipient that cannot stand in a command is `recipient`, such a sender is `configuration`,
    /// and a message with anything but whole CRLF line ends is `schema`: a bare line end may be read
    /// as the end of the data by one server and not by the next.
    pub(super) fn new(message: &FrozenMessage) -> Result<Self, Failure> {
        let recipient = message.recipient.reveal();
        if !is_address(recipient) {
            return Err(Failure::new(FailureClass::Recipient, "smtp recipient malformed"));
        }
        if !is_address(&message.sender) {
            return Err(Failure::new(FailureClass::Configuration, "smtp sender malformed"));
        }
        let mime = message.mime.reveal();
        if has_bare_line_end(mime) {
            return Err(Failure::new(FailureClass::Schema, "smtp message with bare line end"));
        }
        Ok(Self {
            sender: message.sender.clone(),
            recipient: recipient.clone(),
            size: mime.len(),
            has_eight_bit: !mime.is_ascii(),
            body: stuff_dots(mime.strip_suffix(b"\r\n").unwrap_or(mime)),
        })
    }

    /// The MAIL command, with the parameters that the server understands.
    ///
    /// # Errors
    /// What the message needs and the server does not offer.
    pub(super) fn mail_command(&self, offered: &EhloResponse<String>) -> Result<String, Stop> {
        let beyond = |class, what| Stop::new(Phase::Mail, Cause::Beyond(class, what));
        let mut command = format!("MAIL FROM:<{}>", self.sender);
        if offered.has_capability(EXT_SIZE) {
            if offered.size > 0 && self.size > offered.size {
                return Err(beyond(FailureClass::Schema, "message larger than offered SIZE"));
            }
            // Writing to a string cannot fail.
            write!(command, " SIZE={}", self.size).ok();
        }
        if self.has_eight_bit {
            if !offered.has_capability(EXT_8BIT_MIME) {
                return Err(beyond(FailureClass::Schema, "no 8BITMIME offered"));
            }
            command.push_str(" BODY=8BITMIME");
        }
        if !self.sender.is_ascii() || !self.recipient.is_ascii() {
            if !offered.has_capability(EXT_SMTP_UTF8) {
                let class = if self.sender.is_ascii() {
                    FailureClass::Recipient
                } else {
                    FailureClass::Configuration
                };
                return Err(beyond(class, "no SMTPUTF8 offered"));
            }
            command.push_str(" SMTPUTF8");
        }
        command.push_str("\r\n");
        Ok(command)
    }

    /// The RCPT command.
    pub(super) fn rcpt_command(&self) -> String {
        format!("RCPT TO:<{}>\r\n", self.recipient)
    }

    /// What is written after 354 and before the write that ends the data.
    pub(super) fn into_body(self) -> Vec<u8> {
        self.body
    }
}

/// Whether an address can stand between the brackets of a command without changing it. Whether it
/// exists, the server says.
fn is_address(address: &str) -> bool {
    let harmless = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>');
    address.len() <= ADDRESS_MAX_BYTES
        && address.chars().all(harmless)
        && address
            .rsplit_once('@')
            .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

fn has_bare_line_end(mime: &[u8]) -> bool {
    let mut previous = 0;
    for byte in mime {
        if (previous == b'\r') != (*byte == b'\n') {
            return true;
        }
        previous = *byte;
    }
    previous == b'\r'
}

/// RFC 5321, section 4.5.2: a dot that begins a line is doubled.
fn stuff_dots(text: &[u8]) -> Vec<u8> {
    let mut stuffed = Vec::with_capacity(text.len() + 16);
    let mut at_line_start = true;
    for byte in text {
        if at_line_start && *byte == b'.' {
            stuffed.push(b'.');
        }
        stuffed.push(*byte);
        at_line_start = *byte == b'\n';
    }
    stuffed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Redacted;
    use proptest::prelude::*;

    fn message(recipient: &str, sender: &str, mime: &[u8]) -> FrozenMessage {
        FrozenMessage {
            recipient: Redacted::new(recipient.to_owned()),
            sender: sender.to_owned(),
            from: sender.to_owned(),
            subject: Redacted::new(String::new()),
            text: Redacted::new(String::new()),
            html: None,
            headers: crate::redacted::Redacted::new(Vec::new()),
            mime: Redacted::new(mime.to_vec()),
            content_hash: String::new(),
        }
    }

    fn letter(recipient: &str, sender: &str, mime: &[u8]) -> Result<Letter, Failure> {
        Letter::new(&message(recipient, sender, mime))
    }

    fn offered(capabilities: u32, size: usize) -> EhloResponse<String> {
        EhloResponse { capabilities, size, ..EhloResponse::new(String::new()) }
    }

    #[test]
    fn an_address_that_would_change_the_command_is_never_written() {
        for address in [
            "",
            "bob",
            "@shop.example",
            "bob@",
            "b ob@shop.example",
            "bob@shop.example>\r\nRCPT TO:<eve@shop.example",
            "<bob@shop.example>",
            &format!("{}@shop.example", "b".repeat(250)),
        ] {
            let refused = letter(address, "d@shop.example", b"x\r\n").err().unwrap();
            assert_eq!(refused.class, FailureClass::Recipient, "{address}");
            assert!(!refused.code.contains('@'), "{refused}");
            let refused = letter("b@shop.example", address, b"x\r\n").err().unwrap();
            assert_eq!(refused.class, FailureClass::Configuration, "{address}");
        }
        assert!(letter("o'hara+x=1@shop.example", "d@shop.example", b"x\r\n").is_ok());
    }

    #[test]
    fn a_bare_line_end_is_refused() {
        for mime in [&b"a\nb\r\n"[..], b"a\rb\r\n", b"a\r\n.\r", b"\n", b"a\r\r\n"] {
            let refused = letter("b@shop.example", "d@shop.example", mime).err().unwrap();
            assert_eq!(refused.class, FailureClass::Schema, "{mime:?}");
        }
    }

    #[test]
    fn parameters_follow_what_the_server_offers() {
        let plain = letter("b@shop.example", "d@shop.example", b"text\r\n").unwrap();
        assert_eq!(plain.mail_command(&offered(0, 0)).unwrap(), "MAIL FROM:<d@shop.example>\r\n");
        assert_eq!(
            plain.mail_command(&offered(EXT_SIZE | EXT_SMTP_UTF8, 0)).unwrap(),
            "MAIL FROM:<d@shop.example> SIZE=6\r\n"
        );
        let refused = plain.mail_command(&offered(EXT_SIZE, 5)).unwrap_err();
        assert_eq!(refused.failure().class, FailureClass::Schema);

        let wide = letter("bøb@shop.example", "d@shop.example", "tæxt\r\n".as_bytes()).unwrap();
        assert_eq!(
            wide.mail_command(&offered(EXT_8BIT_MIME | EXT_SMTP_UTF8, 0)).unwrap(),
            "MAIL FROM:<d@shop.example> BODY=8BITMIME SMTPUTF8\r\n"
        );
        let refused = wide.mail_command(&offered(EXT_SMTP_UTF8, 0)).unwrap_err();
        assert_eq!(refused.failure().class, FailureClass::Schema);
        let refused = wide.mail_command(&offered(EXT_8BIT_MIME, 0)).unwrap_err();
        assert_eq!(refused.failure().class, FailureClass::Recipient);
    }

    proptest! {
        /// Whatever the message, what is written holds no end of data, and the receiver's rule gives
        /// the message back.
        #[test]
        fn stuffing_hides_every_end_of_data_and_is_undone_by_the_rule(
            lines in prop::collection::vec("[.a]{0,4}\r\n", 0..12)
        ) {
            let mime = lines.concat();
            let letter = letter("b@shop.example", "d@shop.example", mime.as_bytes()).unwrap();
            let body = String::from_utf8(letter.into_body()).unwrap();
            let written = format!("\r\n{body}\r\n");
            prop_assert!(!written.contains("\r\n.\r\n"));
            let received: String = format!("{body}\r\n")
                .split_inclusive("\r\n")
                .map(|line| line.strip_prefix('.').unwrap_or(line))
                .collect();
            prop_assert_eq!(received, if mime.is_empty() { "\r\n".to_owned() } else { mime });
        }
    }
}
