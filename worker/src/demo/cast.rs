//! Who of the demo's customers meets what. Nothing is drawn: the same customer meets the same in
//! every demo, whatever its period.

use std::fmt::Write as _;

/// The campaign of the demo.
pub(super) const CAMPAIGN: &str = "digest";

/// Customers up to this one have a fixed part, those after it meet faults by share.
const NAMED: u32 = 60;

/// From this many customers on the parts are spread over the list; fewer get them in order.
const SPREAD_FROM: u32 = 24;

/// What a customer meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Accepted, never answered, and never found by a look-up: waits for a human.
    Waits,
    /// Refused for good.
    Refused,
    /// Opts out after the selection is frozen.
    OptsOut,
    /// Accepted, never answered, and found by a look-up.
    Found,
    /// Told to slow down once.
    RateLimited,
    /// Told once that the provider is busy.
    Overloaded,
}

/// The parts that one customer each has.
const PARTS: [Part; 6] =
    [Part::Waits, Part::Refused, Part::OptsOut, Part::Found, Part::RateLimited, Part::Overloaded];

/// The demo's customers and their parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    /// How many customers there are, numbered from 1.
    pub(super) customers: u32,
}

impl Cast {
    /// The part of customer `number`; `None` for one whose message is simply accepted.
    pub(super) fn part(self, number: u32) -> Option<Part> {
        if self.customers < SPREAD_FROM {
            let index = usize::try_from(number.checked_sub(1)?).ok()?;
            return PARTS.get(index).copied();
        }
        match number {
            7 => Some(Part::Waits),
            12 => Some(Part::Refused),
            18 => Some(Part::OptsOut),
            24 => Some(Part::Found),
            61.. => None,
            _ if number % 10 == 5 => Some(Part::RateLimited),
            _ if number % 15 == 13 => Some(Part::Overloaded),
            _ => None,
        }
    }

    /// The first customer with `part`, as the shop names it.
    pub(super) fn who(self, part: Part) -> Option<String> {
        self.named().find(|(_, of)| *of == part).map(|(number, _)| id(number))
    }

    fn named(self) -> impl Iterator<Item = (u32, Part)> {
        (1..=self.customers.min(NAMED)).filter_map(move |n| Some((n, self.part(n)?)))
    }

    /// The sandbox's fault script, as the configuration has it.
    pub(super) fn faults(self) -> String {
        let mut text = String::new();
        if self.customers > NAMED {
            text.push_str("\n[sandbox.shares]\nrate_limit = 0.06\noverload = 0.04\n");
        }
        for (number, part) in self.named() {
            let fault = match part {
                Part::Waits => "kinds = [\"accept_then_hang\"]\ninvisible = true",
                Part::Refused => "kinds = [\"reject\"]",
                Part::OptsOut => continue,
                Part::Found => "kinds = [\"accept_then_hang\"]",
                Part::RateLimited => "kinds = [\"rate_limit\"]",
                Part::Overloaded => "kinds = [\"overload\"]",
            };
            // Writing to a text cannot fail.
            let _ = write!(text, "\n[[sandbox.fault]]\ncustomer = \"{}\"\n{fault}\n", id(number));
        }
        text
    }

    /// A rate at which the run can be watched, and does not take long.
    pub(super) fn rate_per_second(self) -> u32 {
        (self.customers / 5).clamp(12, 200)
    }
}

/// The id of customer `number` in the shop.
fn id(number: u32) -> String {
    format!("customer-{number:04}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest_activities::provider::sandbox::Behaviour;

    fn count(cast: Cast, part: Part) -> usize {
        (1..=cast.customers).filter(|number| cast.part(*number) == Some(part)).count()
    }

    #[test]
    fn every_branch_is_seen_by_as_few_as_six_and_singular_parts_stay_singular() {
        for customers in [6, 23, 24, 60, 61, 5_000] {
            let cast = Cast { customers };
            for part in [Part::Waits, Part::Refused, Part::OptsOut, Part::Found] {
                assert_eq!(count(cast, part), 1, "{part:?} of {customers}");
            }
            for part in [Part::RateLimited, Part::Overloaded] {
                assert!(count(cast, part) > 0, "{part:?} of {customers}");
            }
        }
    }

    #[test]
    fn the_script_is_one_that_the_sandbox_takes() {
        for customers in [1, 6, 60, 61] {
            let text = format!("contract = \"lookup_hits_only\"\n{}", Cast { customers }.faults());
            let table: toml::Table = text
                .replace("sandbox.fault", "fault")
                .replace("sandbox.shares", "shares")
                .parse()
                .unwrap();
            let behaviour: Behaviour = table.try_into().unwrap();
            assert!(behaviour.faults.customers.iter().any(|entry| entry.invisible));
        }
    }
}
