//! How often what has happened: a fault that never fired proves nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by part and by what happened to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(BTreeMap<String, BTreeMap<String, u32>>);

impl Tally {
    /// Counts once.
    pub(super) fn add(&mut self, part: &impl ToString, what: &str) {
        self.add_many(part, what, 1);
    }

    /// Counts so many times, which may be none.
    pub(super) fn add_many(&mut self, part: &impl ToString, what: &str, times: u32) {
        if times > 0 {
            *self.0.entry(part.to_string()).or_default().entry(what.to_owned()).or_default() +=
                times;
        }
    }

    /// Adds another's counts.
    pub(super) fn join(&mut self, other: &Self) {
        for (part, counts) in &other.0 {
            for (what, times) in counts {
                self.add_many(part, what, *times);
            }
        }
    }

    /// How often something happened to a part.
    pub(super) fn of(&self, part: &impl ToString) -> u32 {
        self.0.get(&part.to_string()).map_or(0, |counts| counts.values().sum())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, counts) in &self.0 {
            let counts: Vec<String> =
                counts.iter().map(|(what, times)| format!("{what} {times}")).collect();
            writeln!(f, "  {part}: {}", counts.join(", "))?;
        }
        Ok(())
    }
}
