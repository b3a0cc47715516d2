//! Private values: a type that cannot be printed by accident.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A value that is private: an address, a name, content. It shows as `‹redacted›` wherever it might
/// be printed, and is read only through [`Redacted::reveal`].
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Wraps a private value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The private value, for the few places that really need it.
    pub const fn reveal(&self) -> &T {
        &self.0
    }

    /// A private value made of this one.
    pub fn map<U>(&self, make: impl FnOnce(&T) -> U) -> Redacted<U> {
        Redacted(make(&self.0))
    }

    /// The private value itself, for the few places that store it.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("‹redacted›")
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("‹redacted›")
    }
}
