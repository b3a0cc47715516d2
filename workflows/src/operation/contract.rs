//! Duplicate-control contracts: what a provider can promise about a message whose answer was lost.
//! Adapters declare theirs as data; the machine decides, no adapter decides for itself.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// What one provider promises. The weakest contract ([`Contract::NONE`]) is plain SMTP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contract {
    /// What the same request under the same key does a second time.
    pub replay: Replay,
    /// Whether we can ask what became of a message.
    pub lookup: Lookup,
    /// Whether the provider tells us by itself, in events that carry our key.
    pub events: bool,
    /// What becomes of messages that share a request.
    #[serde(default, skip_serializing_if = "Batch::is_none")]
    pub batch: Batch,
}

impl Contract {
    /// No replay, no look-up, no events: only a late answer or a human can settle a doubt.
    pub const NONE: Self =
        Self { replay: Replay::None, lookup: Lookup::None, events: false, batch: Batch::None };
}

/// What becomes of several messages in one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batch {
    /// Each goes in a request of its own.
    #[default]
    None,
    /// Each has an outcome of its own.
    PerItem,
    /// All are accepted, or none is.
    AllOrNothing,
}

impl Batch {
    /// Whether messages never share a request.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// What happens when the same request is sent again under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It is a second message.
    None,
    /// The original answer is returned and nothing is sent, for `window` after the first request.
    ReturnsOriginal {
        /// How long the provider remembers the key.
        window: SignedDuration,
        /// How much earlier we stop, for clocks and slow requests.
        margin: SignedDuration,
    },
    /// The request is refused as a duplicate, which means accepted with an unknown id.
    RejectsDuplicate {
        /// How long the provider remembers the key.
        window: SignedDuration,
        /// How much earlier we stop, for clocks and slow requests.
        margin: SignedDuration,
    },
}

impl Replay {
    /// How long the provider remembers a key after a request with it; `None` if it does not.
    #[must_use]
    pub const fn window(self) -> Option<SignedDuration> {
        match self {
            Self::None => None,
            Self::ReturnsOriginal { window, .. } | Self::RejectsDuplicate { window, .. } => {
                Some(window)
            }
        }
    }

    /// How long after the first intent the same request may begin again; `None` if never. `takes` is
    /// how long after its beginning one may still arrive: the last one, too, has to arrive while the
    /// key is remembered, whatever the margin.
    #[must_use]
    pub fn usable_for(self, takes: SignedDuration) -> Option<SignedDuration> {
        match self {
            Self::None => None,
            Self::ReturnsOriginal { window, margin }
            | Self::RejectsDuplicate { window, margin } => {
                Some(window.saturating_sub(margin.max(takes)))
            }
        }
    }
}

/// How a message can be looked up at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// Not at all, or only by an id that we do not have when the answer is lost.
    None,
    /// By our own key, or by attributes of a record that carries our key.
    ByKey {
        /// Whether a miss may ever count as "not sent". Where the provider's index may lag for an
        /// unknown time, it never does.
        miss_counts: bool,
    },
    /// By recipient, sender and text of a record that carries no key of ours. A hit counts only where
    /// no other operation can have made the record, and a miss never.
    ByContent,
}

impl Lookup {
    /// Whether the provider can be asked at all.
    #[must_use]
    pub const fn is_offered(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether what is asked for is our own key.
    #[must_use]
    pub const fn is_by_key(self) -> bool {
        matches!(self, Self::ByKey { .. })
    }

    /// Whether what is asked for is the message's content.
    #[must_use]
    pub const fn is_by_content(self) -> bool {
        matches!(self, Self::ByContent)
    }

    /// Whether a miss may ever count as "not sent".
    #[must_use]
    pub const fn miss_counts(self) -> bool {
        matches!(self, Self::ByKey { miss_counts: true })
    }
}

/// Which account at which provider an attempt was handed to. A doubt is replayed and looked up only
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProviderRef {
    /// The adapter: `smtp`, `sandbox`, …
    pub kind: String,
    /// A fingerprint of the account and endpoint, never the credential itself.
    pub account: String,
}

impl ProviderRef {
    /// The provider of an attempt of which nothing is on record. No configuration has it, so it is
    /// neither replayed to nor asked.
    #[must_use]
    pub fn unrecorded() -> Self {
        Self { kind: "unrecorded".to_owned(), account: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_is_by_key_or_by_content_and_only_by_key_a_miss_may_count() {
        for (lookup, by_key, by_content, misses, json) in [
            (Lookup::None, false, false, false, r#""none""#),
            (Lookup::ByContent, false, true, false, r#""by_content""#),
            (
                Lookup::ByKey { miss_counts: true },
                true,
                false,
                true,
                r#"{"by_key":{"miss_counts":true}}"#,
            ),
        ] {
            assert_eq!(lookup.is_offered(), by_key || by_content);
            assert_eq!((lookup.is_by_key(), lookup.is_by_content()), (by_key, by_content));
            assert_eq!(lookup.miss_counts(), misses);
            assert_eq!(serde_json::to_string(&lookup).unwrap(), json);
            assert_eq!(serde_json::from_str::<Lookup>(json).unwrap(), lookup);
        }
    }
}
