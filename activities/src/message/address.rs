//! Mailboxes: what may stand in an envelope and in an address header.
//!
//! Deliberately stricter than RFC 5321: a local part is an ASCII dot-atom, so quoted local parts
//! and SMTPUTF8 (RFC 6531), which many servers refuse, are not usable; a domain has at least two
//! labels and is no address literal. International domains are converted to A-labels (RFC 5890).

use url::Host;

/// Octets of a local part (RFC 5321, 4.5.3.1.1).
const LOCAL_PART_BYTES_MAX: usize = 64;
/// Octets of an address: a path of 256 (RFC 5321, 4.5.3.1.3) without its angle brackets.
const ADDRESS_BYTES_MAX: usize = 254;
/// Octets of one label of a domain (RFC 1035, 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// A bare address that is safe to put into an envelope or a header.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    text: String,
    at: usize,
}

/// Why a text is not a usable address. It never carries the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    #[error("missing")]
    Missing,
    #[error("not exactly one bare mailbox")]
    NotOneMailbox,
    #[error("local part not usable")]
    LocalPart,
    #[error("local part not ascii")]
    LocalPartNotAscii,
    #[error("domain not usable")]
    Domain,
    #[error("too long")]
    TooLong,
}

impl Address {
    /// Reads exactly one bare address; nothing is trimmed or repaired, except that an international
    /// domain becomes ASCII and every domain lower-case.
    pub(super) fn parse(text: &str) -> Result<Self, AddressError> {
        if text.trim().is_empty() {
            return Err(AddressError::Missing);
        }
        let unusable = |c: char| {
            c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '"' | '(')
        };
        if text.contains(unusable) {
            return Err(AddressError::NotOneMailbox);
        }
        let (local, domain) = text.split_once('@').ok_or(AddressError::NotOneMailbox)?;
        if domain.contains('@') {
            return Err(AddressError::NotOneMailbox);
        }
        check_local_part(local)?;
        let domain = ascii_domain(domain)?;
        let text = format!("{local}@{domain}");
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        Ok(Self { text, at: local.len() })
    }

    /// The whole address.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// What follows the `@`.
    pub(super) fn domain(&self) -> &str {
        self.text.get(self.at + 1..).unwrap_or_default()
    }
}

/// The mailbox of a rendered `from`.
pub(super) struct Mailbox {
    /// The display name: one line, unquoted.
    pub(super) name: Option<String>,
    /// Its address.
    pub(super) address: Address,
}

impl Mailbox {
    /// Reads `Name <address>`, `"Name" <address>` or a bare address. Only the last angle brackets
    /// can hold the address, so nothing in a name ever becomes one.
    pub(super) fn parse(text: &str) -> Result<Self, AddressError> {
        let text = one_line(text);
        let Some((name, rest)) = text.rsplit_once('<') else {
            return Ok(Self { name: None, address: Address::parse(&text)? });
        };
        let address = rest.strip_suffix('>').ok_or(AddressError::NotOneMailbox)?;
        let address = Address::parse(address)?;
        let name = unquote(name.trim());
        Ok(Self { name: (!name.is_empty()).then_some(name), address })
    }

    /// The value of an address header, unencoded, as providers' interfaces take it.
    pub(super) fn to_header(&self) -> String {
        let address = self.address.as_str();
        let Some(name) = &self.name else { return address.to_owned() };
        let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '\'' | '&');
        if name.chars().all(plain) {
            format!("{name} <{address}>")
        } else {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{name}\" <{address}>")
        }
    }
}

/// `text` as one line: every run of spaces, control characters and line or paragraph separators
/// becomes one space, and none stands at the ends. No-break spaces stay: typography needs them.
pub(super) fn one_line(text: &str) -> String {
    let breaks = |c: char| c == ' ' || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let words: Vec<&str> = text.split(breaks).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn unquote(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

/// A dot-atom (RFC 5321, 4.1.2) of at most [`LOCAL_PART_BYTES_MAX`].
fn check_local_part(local: &str) -> Result<(), AddressError> {
    if !local.is_ascii() {
        return Err(AddressError::LocalPartNotAscii);
    }
    if local.len() > LOCAL_PART_BYTES_MAX {
        return Err(AddressError::TooLong);
    }
    let atext = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
    if local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(atext)) {
        Ok(())
    } else {
        Err(AddressError::LocalPart)
    }
}

/// The domain in lower-case A-labels: at least two labels of letters, digits and inner hyphens.
fn ascii_domain(domain: &str) -> Result<String, AddressError> {
    // The host parser of URLs would decode percent signs, which no mail domain has.
    if domain.contains('%') {
        return Err(AddressError::Domain);
    }
    let Ok(Host::Domain(domain)) = Host::parse(domain) else { return Err(AddressError::Domain) };
    let ldh = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let usable = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(ldh)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if domain.contains('.') && domain.split('.').all(usable) {
        Ok(domain)
    } else {
        Err(AddressError::Domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_addresses_are_taken_as_they_are() {
        for (text, expected) in [
            ("ann@shop.example", "ann@shop.example"),
            ("Ann.O'Neil+digest@Shop.Example", "Ann.O'Neil+digest@shop.example"),
            ("a%b=c/d@x-y.example", "a%b=c/d@x-y.example"),
            ("ann@bücher.example", "ann@xn--bcher-kva.example"),
            ("ann@münchen。example", "ann@xn--mnchen-3ya.example"),
        ] {
            let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.as_str(), expected);
            assert_eq!(address.domain(), expected.split_once('@').unwrap().1);
        }
    }

    #[test]
    fn unusable_addresses_are_refused_by_reason() {
        use AddressError as E;
        let long_local = format!("{}@shop.example", "a".repeat(65));
        let long_label = format!("a@{}.example", "a".repeat(64));
        let long = format!("a@{}example", "abcdefghi.".repeat(25));
        for (text, expected) in [
            ("", E::Missing),
            (" \n", E::Missing),
            ("ann", E::NotOneMailbox),
            ("ann@shop.example\r\nBcc: eve@evil.example", E::NotOneMailbox),
            ("ann@shop.example\n", E::NotOneMailbox),
            (" ann@shop.example", E::NotOneMailbox),
            ("ann@shop.example,eve@evil.example", E::NotOneMailbox),
            ("ann@shop.example;eve@evil.example", E::NotOneMailbox),
            ("ann@shop.example@evil.example", E::NotOneMailbox),
            ("Ann <ann@shop.example>", E::NotOneMailbox),
            ("<ann@shop.example>", E::NotOneMailbox),
            ("\"ann b\"@shop.example", E::NotOneMailbox),
            ("ann(comment)@shop.example", E::NotOneMailbox),
            ("ann\u{2028}@shop.example", E::NotOneMailbox),
            ("ann\0@shop.example", E::NotOneMailbox),
            ("@shop.example", E::LocalPart),
            (".ann@shop.example", E::LocalPart),
            ("a..b@shop.example", E::LocalPart),
            ("a\\b@shop.example", E::LocalPart),
            ("zoë@shop.example", E::LocalPartNotAscii),
            ("ann@", E::Domain),
            ("ann@shop", E::Domain),
            ("ann@shop.example.", E::Domain),
            ("ann@shop..example", E::Domain),
            ("ann@-shop.example", E::Domain),
            ("ann@sh_op.example", E::Domain),
            ("ann@sh%6fp.example", E::Domain),
            ("ann@127.0.0.1", E::Domain),
            ("ann@[127.0.0.1]", E::Domain),
            ("ann@shop.example:25", E::Domain),
            (&long_local, E::TooLong),
            (&long_label, E::Domain),
            (&long, E::TooLong),
        ] {
            assert_eq!(Address::parse(text).err(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn a_from_is_read_with_and_without_a_name() {
        for (text, name, header) in [
            ("digest@shop.example", None, "digest@shop.example"),
            ("<digest@shop.example>", None, "digest@shop.example"),
            ("Shop <digest@shop.example>", Some("Shop"), "Shop <digest@shop.example>"),
            (
                "\"Sam \\\"S\\\" Shop\" <digest@shop.example>\n",
                Some("Sam \"S\" Shop"),
                "\"Sam \\\"S\\\" Shop\" <digest@shop.example>",
            ),
            (
                "a@b.example>, <x <digest@shop.example>",
                Some("a@b.example>, <x"),
                "\"a@b.example>, <x\" <digest@shop.example>",
            ),
        ] {
            let mailbox = Mailbox::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(mailbox.name.as_deref(), name);
            assert_eq!(mailbox.to_header(), header);
            assert_eq!(mailbox.address.as_str(), "digest@shop.example");
        }
        assert!(Mailbox::parse("Shop <digest@shop.example> x").is_err());
        assert!(Mailbox::parse("Shop").is_err());
    }

    #[test]
    fn one_line_keeps_words_and_no_break_spaces() {
        assert_eq!(one_line("\r\n a\r\n\tb\u{2028}c\u{85}d\0 "), "a b c d");
        assert_eq!(one_line("50\u{a0}€ !"), "50\u{a0}€ !");
        assert_eq!(one_line("\n"), "");
    }
}
