//! The rate at the instant of writing. A slot only says when an attempt may begin; connecting, asking
//! and recording take longer for some than for others, and what was late would arrive in a burst.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// When this worker wrote last, as far back as the rate reaches.
#[derive(Debug)]
pub(super) struct Window {
    count: usize,
    span: Duration,
    written: VecDeque<Instant>,
}

impl Window {
    /// A window in which no second holds more than `rate` messages; where `rate` is not whole, no
    /// span of its next whole number does.
    pub(super) fn new(rate: f64) -> Self {
        let whole = rate.ceil().max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate of messages per second, at least one"
        )]
        let count = whole as usize;
        Self { count, span: Duration::from_secs_f64(whole / rate), written: VecDeque::new() }
    }

    /// Takes the next place at `now` or later, and returns the instant from which one may write.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        let free = match self.written.front() {
            Some(first) if self.written.len() == self.count => now.max(*first + self.span),
            _ => now,
        };
        if self.written.len() == self.count {
            self.written.pop_front();
        }
        self.written.push_back(free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The instants at which may be written when it is asked at `asked`, in milliseconds.
    fn taken(rate: f64, asked: &[u64]) -> Vec<Duration> {
        let start = Instant::now();
        let mut window = Window::new(rate);
        let take = |at: &u64| window.take(start + Duration::from_millis(*at)) - start;
        asked.iter().map(take).collect()
    }

    proptest! {
        #[test]
        fn no_second_holds_more_than_the_rate(
            rate in 1_u32..40,
            waits in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..90, 0_u64..3_000], 1..120),
        ) {
            let asked: Vec<u64> = waits.iter().scan(0, |at, wait| { *at += wait; Some(*at) }).collect();
            let written = taken(f64::from(rate), &asked);
            for (index, from) in written.iter().enumerate() {
                let until = *from + Duration::from_secs(1);
                let within = written[index..].iter().filter(|at| **at < until).count();
                prop_assert!(within <= rate as usize, "{within} in the second from {from:?}");
            }
            for (at, asked) in written.iter().zip(&asked) {
                prop_assert!(*at >= Duration::from_millis(*asked));
            }
        }

        #[test]
        fn what_keeps_to_the_rate_never_waits(rate in 1_u64..40, count in 1_u64..120) {
            let asked: Vec<u64> = (0..count).map(|n| n * (1_000 / rate + 1)).collect();
            let rate = f64::from(u32::try_from(rate).unwrap());
            for (at, asked) in taken(rate, &asked).iter().zip(&asked) {
                prop_assert_eq!(*at, Duration::from_millis(*asked));
            }
        }
    }

    #[test]
    fn a_rate_that_is_not_whole_holds_over_a_longer_span() {
        let millis = |rate, asked: &[u64]| -> Vec<u128> {
            taken(rate, asked).iter().map(Duration::as_millis).collect()
        };
        assert_eq!(millis(0.5, &[0, 0, 5_000]), [0, 2_000, 5_000]);
        assert_eq!(millis(2.5, &[0, 0, 0, 0]), [0, 0, 0, 1_200]);
    }
}
