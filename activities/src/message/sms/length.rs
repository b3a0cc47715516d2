//! How long a text message is: a phone network carries it in segments, and each is paid for.
//!
//! A text of the GSM alphabet alone (3GPP TS 23.038, 6.2.1) travels in 7 bits a character, any other
//! in UCS-2. Alone, 140 octets hold 160 or 70 of them; of a longer text each segment also carries a
//! header of 6 octets (3GPP TS 23.040, 9.2.3.24.1), which leaves 153 or 67.

use serde::Serialize;
use std::fmt;

/// The basic table, except the escape itself.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// The extension table, whose characters come behind an escape and so count two.
const EXTENSION: &str = "^{}\\[~]|€\u{c}";

/// How a text travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Encoding {
    /// The GSM alphabet, 7 bits a character.
    #[serde(rename = "GSM-7")]
    Gsm7,
    /// Two octets a character.
    #[serde(rename = "UCS-2")]
    Ucs2,
}

impl Encoding {
    /// How many units a message of one segment holds, and each segment of a longer one.
    const fn room(self) -> (usize, usize) {
        match self {
            Self::Gsm7 => (160, 153),
            Self::Ucs2 => (70, 67),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gsm7 => "GSM-7",
            Self::Ucs2 => "UCS-2",
        })
    }
}

/// The length of one text message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Its characters as the encoding counts them: in GSM-7 one of the extension table, such as `€`,
    /// is two, and in UCS-2 one beyond the basic plane, such as an emoji.
    pub characters: usize,
    /// How it travels.
    pub encoding: Encoding,
    /// How many segments carry it.
    pub segments: usize,
}

impl Length {
    /// The length of `text`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let in_septets: Option<Vec<usize>> = text.chars().map(septets).collect();
        let (encoding, widths) = match in_septets {
            Some(widths) => (Encoding::Gsm7, widths),
            None => (Encoding::Ucs2, text.chars().map(char::len_utf16).collect()),
        };
        let (alone, each) = encoding.room();
        let characters = widths.iter().sum();
        let segments = if characters <= alone { 1 } else { fill(&widths, each) };
        Self { characters, encoding, segments }
    }

    /// Its segments in words, such as `2 segments`.
    #[must_use]
    pub fn in_segments(&self) -> String {
        format!("{} segment{}", self.segments, if self.segments == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} characters, {}, {}", self.characters, self.encoding, self.in_segments())
    }
}

/// What `c` takes in the GSM alphabet, if it has it.
fn septets(c: char) -> Option<usize> {
    if BASIC.contains(c) { Some(1) } else { EXTENSION.contains(c).then_some(2) }
}

/// How many segments of `room` hold characters of these widths, none of which is torn apart.
fn fill(widths: &[usize], room: usize) -> usize {
    let (mut segments, mut used) = (1, 0);
    for width in widths {
        if used + width > room {
            segments += 1;
            used = 0;
        }
        used += width;
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn length(text: &str) -> (usize, Encoding, usize) {
        let Length { characters, encoding, segments } = Length::of(text);
        (characters, encoding, segments)
    }

    #[test]
    fn the_alphabet_has_the_size_of_its_table() {
        // 128 places, of which one is the escape.
        assert_eq!(BASIC.chars().count(), 127);
        assert_eq!(EXTENSION.chars().count(), 10);
        assert!(!EXTENSION.chars().any(|c| BASIC.contains(c)));
    }

    #[test]
    fn characters_and_segments_are_those_of_the_encoding() {
        use Encoding::{Gsm7, Ucs2};
        let times = |text: &str, count| text.repeat(count);
        for (text, expected) in [
            (times("a", 160), (160, Gsm7, 1)),
            (times("a", 161), (161, Gsm7, 2)),
            (times("a", 306), (306, Gsm7, 2)),
            (times("a", 307), (307, Gsm7, 3)),
            (times("€", 80), (160, Gsm7, 1)),
            (times("€", 81), (162, Gsm7, 2)),
            // 153 is odd, so one place of each segment stays empty.
            (times("€", 153), (306, Gsm7, 3)),
            (times("ä", 160), (160, Gsm7, 1)),
            // A letter that the alphabet does not have, beside others.
            (times("a", 69) + "ç", (70, Ucs2, 1)),
            (times("a", 70) + "ç", (71, Ucs2, 2)),
            (times("字", 134), (134, Ucs2, 2)),
            (times("字", 135), (135, Ucs2, 3)),
            (times("🎉", 35), (70, Ucs2, 1)),
            // 67 is odd, and an emoji is not torn apart.
            (times("🎉", 67), (134, Ucs2, 3)),
            ("’".to_owned(), (1, Ucs2, 1)),
        ] {
            assert_eq!(length(&text), expected, "{text}");
        }
        assert_eq!(Length::of("Grüße").to_string(), "5 characters, GSM-7, 1 segment");
        assert_eq!(Length::of(&times("字", 71)).to_string(), "71 characters, UCS-2, 2 segments");
    }

    proptest! {
        #[test]
        fn segments_hold_all_and_no_more_than_their_room(text in "[a-z€ç🎉]{1,400}") {
            let Length { characters, encoding, segments } = Length::of(&text);
            let (alone, each) = encoding.room();
            prop_assert_eq!(segments == 1, characters <= alone);
            if segments > 1 {
                // At most one place of each but the last can stay empty.
                prop_assert!(characters <= segments * each);
                prop_assert!(characters > (segments - 1) * (each - 1));
            }
        }
    }
}
