//! Values bound to parameters.

use jiff::Timestamp;

/// A value bound to a parameter.
#[derive(Clone, Debug)]
pub(in crate::ledger) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(Some(int))
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Self {
        Self::Int(Some(i64::from(int)))
    }
}

impl From<u64> for Value {
    fn from(int: u64) -> Self {
        Self::Int(Some(i64::try_from(int).unwrap_or(i64::MAX)))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Int(Some(i64::from(flag)))
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Self::Int(Some(at.as_millisecond()))
    }
}

impl From<Option<Timestamp>> for Value {
    fn from(at: Option<Timestamp>) -> Self {
        Self::Int(at.map(Timestamp::as_millisecond))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// The places of `count` parameters in a list, from the first one on: `$1, $2, $3`.
pub(in crate::ledger) fn places(count: usize) -> String {
    places_from(1, count)
}

/// The same from the place `first` on.
pub(in crate::ledger) fn places_from(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|place| format!("${place}")).collect();
    places.join(", ")
}

/// A parameter list of mixed types.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::ledger::database::Value::from($value)),*] };
}
pub(in crate::ledger) use values;
