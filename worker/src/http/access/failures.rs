//! Wrong tokens: after a few from one place, the next try has to wait, longer each time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many are free: a person mistypes.
const FREE: u32 = 5;
/// The first wait; each further one is twice as long.
const BASE: Duration = Duration::from_secs(1);
/// The longest wait.
const CAP: Duration = Duration::from_mins(5);
/// A place that was quiet for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_hours(1);
/// So many places are remembered. Beyond, the one that may try again soonest is forgotten.
const PLACES_MAX: usize = 1_000;

/// The wrong tokens of each place.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Record>>);

struct Record {
    count: u32,
    until: Instant,
}

impl Failures {
    /// Whether `from` may try now; else how long it has to wait.
    pub(super) fn may_try(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        match self.lock().get(&place(from)) {
            Some(record) if now < record.until => Err(record.until - now),
            _ => Ok(()),
        }
    }

    /// One more was wrong.
    pub(super) fn failed(&self, from: IpAddr, now: Instant) {
        let mut places = self.lock();
        if places.len() >= PLACES_MAX {
            places.retain(|_, record| now < record.until + FORGOTTEN);
        }
        if places.len() >= PLACES_MAX
            && let Some(first) = places.iter().min_by_key(|(_, record)| record.until)
        {
            let first = *first.0;
            places.remove(&first);
        }
        let record = places.entry(place(from)).or_insert(Record { count: 0, until: now });
        if now >= record.until + FORGOTTEN {
            record.count = 0;
        }
        record.count += 1;
        let doublings = record.count.saturating_sub(FREE + 1).min(16);
        let wait = if record.count > FREE { BASE * 2_u32.pow(doublings) } else { Duration::ZERO };
        record.until = now + wait.min(CAP);
    }

    /// The right one came.
    pub(super) fn succeeded(&self, from: IpAddr) {
        self.lock().remove(&place(from));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One subscriber has a whole network of version 6, so its first half is the place.
fn place(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_wait_longer_each_time_and_only_where_they_come_from() {
        let (failures, now) = (Failures::default(), Instant::now());
        let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        for _ in 0..FREE {
            assert_eq!(failures.may_try(here, now), Ok(()));
            failures.failed(here, now);
        }
        let mut waits = Vec::new();
        for _ in 0..20 {
            failures.failed(here, now);
            waits.push(failures.may_try(here, now).unwrap_err());
        }
        assert_eq!(waits[0], BASE);
        assert!(waits.is_sorted() && *waits.last().unwrap() == CAP, "{waits:?}");
        assert_eq!(failures.may_try(there, now), Ok(()));
        assert_eq!(failures.may_try(here, now + CAP), Ok(()));
        failures.succeeded(here);
        assert_eq!(failures.may_try(here, now), Ok(()));
    }

    #[test]
    fn a_place_is_forgotten_after_a_while_and_their_number_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        let of = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        for n in 0..5_000 {
            failures.failed(of(n), now);
        }
        assert!(failures.lock().len() <= PLACES_MAX);
        let here = of(1);
        (0..FREE).for_each(|_| failures.failed(here, now));
        failures.failed(here, now + FORGOTTEN + CAP);
        assert_eq!(failures.may_try(here, now + FORGOTTEN + CAP), Ok(()));
    }

    #[test]
    fn a_network_of_version_6_is_one_place() {
        let of = |text: &str| place(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
