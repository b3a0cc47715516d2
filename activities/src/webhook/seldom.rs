//! Saying seldom what strangers can bring about as often as they like.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often at most something is said.
const EVERY: Duration = Duration::from_mins(1);

/// Counts what happens, and says when to tell of it.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    told_at: Option<Instant>,
}

impl Seldom {
    /// Counts one more at `now`; once a minute how many there were since that was told last.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        untold.count += 1;
        if untold.told_at.is_some_and(|at| now.duration_since(at) < EVERY) {
            return None;
        }
        untold.told_at = Some(now);
        Some(std::mem::take(&mut untold.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_how_many_once_a_minute() {
        let seldom = Seldom::default();
        let start = Instant::now();
        let told: Vec<_> =
            (0..=130).map(|s| seldom.count(start + Duration::from_secs(s))).collect();
        let told: Vec<_> = told.iter().enumerate().filter_map(|(s, n)| Some((s, (*n)?))).collect();
        assert_eq!(told, [(0, 1), (60, 60), (120, 60)]);
    }
}
