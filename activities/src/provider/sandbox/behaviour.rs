//! How a sandbox behaves: the contract it keeps, how slow it is, and its fault script. In
//! `digestd.toml` this is the table `[sandbox]`.

use super::faults::{CustomerFaults, FaultKind, FaultScript, ScriptError, is_short};
use digest_workflows::operation::{Contract, Lookup, Replay};
use jiff::SignedDuration;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a sandbox behaves. Its form in TOML, where every key may be absent:
///
/// ```toml
/// [sandbox]
/// contract = "replay"      # replay, lookup, lookup_hits_only, none, or a table as in `Contract`
/// lookup_lag = "0s"        # a look-up finds a message only this long after its acceptance
/// latency = "0s"           # between a request and its acceptance
/// seed = 1                 # of everything that is drawn
/// retry_after = "1s"       # what a 429 asks for
/// late_answer = "5s"       # how late accept_then_late_answer answers
///
/// [sandbox.shares]         # share of requests that meets a fault
/// rate_limit = 0.05
///
/// [[sandbox.fault]]        # faults of one customer: its first request, its second, …
/// customer = "customer-0007"
/// kinds = ["accept_then_hang"]
/// times = 1
/// invisible = true         # look-ups never find it
/// ```
///
/// Reading it checks it ([`Behaviour::validate`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct Behaviour {
    /// What the sandbox promises, and keeps.
    pub contract: Contract,
    /// How long after its acceptance a look-up first finds a message.
    pub lookup_lag: SignedDuration,
    /// How long a message is being processed before it is accepted. Once begun it goes on, also
    /// when the client has gone.
    pub latency: SignedDuration,
    /// What goes wrong.
    pub faults: FaultScript,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::replay()
    }
}

/// Why a behaviour is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BehaviourError {
    /// The fault script is not usable.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A time is negative or above a day.
    #[error("sandbox.{0} is not a time from 0 seconds to 24 hours")]
    Time(&'static str),
    /// A replay window that is shorter than its margin, or a negative margin.
    #[error(
        "the replay window of sandbox.contract is shorter than its margin, or that is negative"
    )]
    Window,
    /// The sandbox sends no events, so its contract must not promise them.
    #[error("the sandbox sends no events; set events = false in sandbox.contract")]
    Events,
    /// A miss that proves nothing under a contract by which a miss counts.
    #[error(
        "customer {0:?} is invisible to look-ups, but a miss counts as not sent by the contract; use contract = \"lookup_hits_only\""
    )]
    FalseMiss(String),
}

impl Behaviour {
    /// A provider that returns the original for 24 hours (we stop an hour earlier), without
    /// look-ups or faults.
    #[must_use]
    pub fn replay() -> Self {
        Self::of(Preset::Replay.contract())
    }

    /// A provider that can be asked by key, where a miss counts as not sent or does not.
    #[must_use]
    pub fn lookup(miss_counts: bool) -> Self {
        let preset = if miss_counts { Preset::Lookup } else { Preset::LookupHitsOnly };
        Self::of(preset.contract())
    }

    /// A provider that promises nothing: the same request again is a second message.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Contract::NONE)
    }

    /// A provider with `contract`, without lag, latency or faults.
    #[must_use]
    pub fn of(contract: Contract) -> Self {
        Self {
            contract,
            lookup_lag: SignedDuration::ZERO,
            latency: SignedDuration::ZERO,
            faults: FaultScript::default(),
            seed: 1,
        }
    }

    /// Checks what the types do not say.
    ///
    /// # Errors
    /// [`BehaviourError`], the first found.
    pub fn validate(&self) -> Result<(), BehaviourError> {
        self.faults.validate()?;
        for (name, time) in [("lookup_lag", self.lookup_lag), ("latency", self.latency)] {
            if !is_short(time) {
                return Err(BehaviourError::Time(name));
            }
        }
        if self.contract.events {
            return Err(BehaviourError::Events);
        }
        if let Replay::ReturnsOriginal { window, margin }
        | Replay::RejectsDuplicate { window, margin } = self.contract.replay
            && (margin.is_negative() || window < margin)
        {
            return Err(BehaviourError::Window);
        }
        if self.contract.lookup == (Lookup::ByKey { miss_counts: true })
            && let Some(entry) = self.faults.customers.iter().find(|entry| entry.invisible)
        {
            return Err(BehaviourError::FalseMiss(entry.customer.clone()));
        }
        Ok(())
    }
}

/// The contracts that have a name.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Preset {
    Replay,
    Lookup,
    LookupHitsOnly,
    None,
}

impl Preset {
    fn contract(self) -> Contract {
        let by_key =
            |miss_counts| Contract { lookup: Lookup::ByKey { miss_counts }, ..Contract::NONE };
        match self {
            Self::Replay => {
                let (window, margin) =
                    (SignedDuration::from_hours(24), SignedDuration::from_hours(1));
                Contract { replay: Replay::ReturnsOriginal { window, margin }, ..Contract::NONE }
            }
            Self::Lookup => by_key(true),
            Self::LookupHitsOnly => by_key(false),
            Self::None => Contract::NONE,
        }
    }
}

/// [`Behaviour`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    #[serde(deserialize_with = "named_or_exact")]
    contract: Contract,
    lookup_lag: SignedDuration,
    latency: SignedDuration,
    seed: u64,
    retry_after: SignedDuration,
    late_answer: SignedDuration,
    shares: BTreeMap<FaultKind, f64>,
    fault: Vec<CustomerFaults>,
}

impl Default for Table {
    fn default() -> Self {
        Behaviour::default().into()
    }
}

impl From<Behaviour> for Table {
    fn from(behaviour: Behaviour) -> Self {
        let Behaviour { contract, lookup_lag, latency, faults, seed } = behaviour;
        let FaultScript { shares, customers: fault, retry_after, late_answer } = faults;
        Self { contract, lookup_lag, latency, seed, retry_after, late_answer, shares, fault }
    }
}

impl TryFrom<Table> for Behaviour {
    type Error = BehaviourError;

    fn try_from(table: Table) -> Result<Self, Self::Error> {
        let Table { contract, lookup_lag, latency, seed, retry_after, late_answer, shares, fault } =
            table;
        let faults = FaultScript { shares, customers: fault, retry_after, late_answer };
        let behaviour = Self { contract, lookup_lag, latency, faults, seed };
        behaviour.validate()?;
        Ok(behaviour)
    }
}

/// Reads a contract by its name or as a table, with an error that tells what was wrong with it.
fn named_or_exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Contract, D::Error> {
    struct NamedOrExact;

    impl<'de> Visitor<'de> for NamedOrExact {
        type Value = Contract;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(
                "replay, lookup, lookup_hits_only, none, or a table with replay, lookup and events",
            )
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Contract, E> {
            let name = serde::de::value::StrDeserializer::<E>::new(name);
            Preset::deserialize(name).map(Preset::contract)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Contract, A::Error> {
            Contract::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_any(NamedOrExact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Behaviour, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn an_empty_table_is_the_replay_preset() {
        assert_eq!(read(""), Ok(Behaviour::replay()));
        assert_eq!(read("contract = 'replay'"), Ok(Behaviour::replay()));
        assert_eq!(read("contract = 'lookup'"), Ok(Behaviour::lookup(true)));
        assert_eq!(read("contract = 'lookup_hits_only'"), Ok(Behaviour::lookup(false)));
        assert_eq!(read("contract = 'none'"), Ok(Behaviour::none()));
    }

    #[test]
    fn everything_can_be_written() {
        let behaviour = read(
            r#"
            lookup_lag = "30s"
            latency = "5ms"
            seed = 42
            retry_after = "2s"
            late_answer = "1m"

            [contract]
            replay = { rejects_duplicate = { window = "30m", margin = "5m" } }
            lookup = { by_key = { miss_counts = false } }
            events = false

            [shares]
            rate_limit = 0.1
            accept_then_reset = 0.01

            [[fault]]
            customer = "customer-0007"
            kinds = ["rate_limit", "accept_then_hang"]
            times = 2
            invisible = true
            "#,
        )
        .unwrap();
        let minutes = SignedDuration::from_mins;
        let replay = Replay::RejectsDuplicate { window: minutes(30), margin: minutes(5) };
        assert_eq!(behaviour.contract.replay, replay);
        assert_eq!(behaviour.lookup_lag, SignedDuration::from_secs(30));
        let shares = [(FaultKind::RateLimit, 0.1), (FaultKind::AcceptThenReset, 0.01)];
        assert_eq!(behaviour.faults.shares, shares.into());
        assert_eq!(behaviour.faults.customers[0].times, 2);
        // What another process reads is the same behaviour.
        let written = serde_json::to_string(&behaviour).unwrap();
        assert_eq!(serde_json::from_str::<Behaviour>(&written).unwrap(), behaviour);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("contract = 'replays'", "unknown variant `replays`, expected one of `replay`"),
            ("contract = 7", "replay, lookup, lookup_hits_only, none, or a table"),
            ("latncy = '1s'", "unknown field `latncy`"),
            ("latency = '-1s'", "sandbox.latency"),
            ("[shares]\nrate_limited = 0.1", "unknown variant `rate_limited`"),
            ("[[fault]]\ncustomer = 'a'\nkinds = ['reject']\nperiod = 'b'", "unknown field"),
            ("[contract]\nreplay = 'none'\nlookup = 'none'\nevents = true", "no events"),
            (
                "contract = 'lookup'\n[[fault]]\ncustomer = 'a'\ninvisible = true",
                "lookup_hits_only",
            ),
            (
                "[contract]\nlookup = 'none'\nevents = false\nreplay = { returns_original = { window = '1m', margin = '1h' } }",
                "shorter than its margin",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text:?} was answered by {error:?}");
        }
    }
}
