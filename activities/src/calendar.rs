//! The calendar: when a campaign's ticks are, in the wall-clock time of its zone.
//!
//! The cron is searched on wall-clock times alone, and each one found is turned into an instant with
//! the zone's rules here, so that what happens at a change of the clocks is decided in one place.
//! Only cron syntax that the engine reads the same way is accepted: five fields of numbers, names,
//! lists, ranges and steps, where a day must match both of its fields.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use digest_workflows::operation::Period;
use jiff::civil::{DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

/// How far ahead [`Calendar::check`] looks.
pub const YEARS_CHECKED: i32 = 5;

/// The ticks of one campaign: a cron in an IANA time zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    text: String,
    cron: Cron,
    timezone: String,
    zone: TimeZone,
}

/// Why a cron or a zone cannot be used, or has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// The cron cannot be read, or the engine would read it differently.
    #[error(
        "{cron:?} is not a cron that can be used: {reason}; write five fields such as \"0 9 * * MON\" (minute, hour, day of month, month, day of week)"
    )]
    Cron {
        /// The cron as it was given.
        cron: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No IANA time zone has this name.
    #[error("there is no time zone {0:?}; write an IANA name such as \"Europe/Berlin\"")]
    Zone(String),
    /// The same zone is spelled differently in the IANA database, and the engine minds the case.
    #[error("the time zone {given:?} is spelled {spelled:?}")]
    ZoneSpelling {
        /// The name as it was given.
        given: String,
        /// The name in the database.
        spelled: String,
    },
    /// A campaign has one tick a week at most, because the week is the period.
    #[error(
        "the cron {cron:?} fires twice in {period}, at {first} and at {second}, and a period is one week; choose one day and one time"
    )]
    TwiceAWeek {
        /// The cron.
        cron: String,
        /// The first week with two ticks.
        period: Period,
        /// The first tick, as the clocks in the zone show it.
        first: DateTime,
        /// The second tick.
        second: DateTime,
    },
    /// No tick at all, such as on 30 February.
    #[error(
        "the cron {0:?} does not fire in the next {YEARS_CHECKED} years; choose a day that exists"
    )]
    Never(String),
    /// A tick lies where the clocks change, or in the hour before, so the engine may skip it, fire it
    /// twice or fire it late.
    #[error("the cron {cron:?} in {timezone} {change}, as on {at}; {}", advice(cron, *safe))]
    ClockChange {
        /// The cron.
        cron: String,
        /// The zone.
        timezone: String,
        /// What the clocks do there.
        change: ClockChange,
        /// The first such tick, as it is written.
        at: DateTime,
        /// The nearest whole or half hour of the same day that is away from every change on every
        /// day with a tick in the years looked at; `None` if that day has none.
        safe: Option<Time>,
    },
    /// The cron does not fire in this week.
    #[error("the cron {cron:?} has no tick in {period}, so this period has no beginning and end")]
    NoTick {
        /// The cron.
        cron: String,
        /// The week.
        period: Period,
    },
}

/// What the clocks do at a tick that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// They go forward over it, or in the hour after it. A time that does not exist is skipped by the
    /// engine.
    Gap,
    /// They go back over it, or in the hour after it. Depending on the zone, the engine fires twice
    /// a tick in the hour that is repeated or one in the hour before.
    Overlap,
}

impl std::fmt::Display for ClockChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gap => "may be skipped: the clocks go forward then, or in the hour after it",
            Self::Overlap => "may fire twice: the clocks go back then, or in the hour after it",
        })
    }
}

impl Calendar {
    /// The calendar of `cron` in the IANA zone `timezone`.
    ///
    /// # Errors
    /// [`CalendarError::Cron`], [`CalendarError::Zone`] or [`CalendarError::ZoneSpelling`]. That the
    /// ticks themselves are sound is asked by [`Calendar::check`].
    pub fn new(cron: &str, timezone: &str) -> Result<Self, CalendarError> {
        let refused = |reason: String| CalendarError::Cron { cron: cron.to_owned(), reason };
        if let Some(odd) =
            cron.chars().find(|c| !c.is_ascii_alphanumeric() && !" \t*/,-".contains(*c))
        {
            return Err(refused(format!("the engine does not know {odd:?} in a cron")));
        }
        let fields = cron.split_whitespace().count();
        if fields != 5 {
            return Err(refused(format!("it has {fields} fields")));
        }
        if cron.split_whitespace().any(|field| matches!(field, "L" | "l") || has_flag(field)) {
            return Err(refused("the engine does not know L and W in a cron".to_owned()));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(true)
            .build();
        let parsed =
            parser.parse(cron).map_err(|error| refused(lower_first(&error.to_string())))?;
        let zone = TimeZone::get(timezone).map_err(|_| CalendarError::Zone(timezone.to_owned()))?;
        match zone.iana_name() {
            Some(spelled) if spelled == timezone => {}
            Some(spelled) => {
                return Err(CalendarError::ZoneSpelling {
                    given: timezone.to_owned(),
                    spelled: spelled.to_owned(),
                });
            }
            None => return Err(CalendarError::Zone(timezone.to_owned())),
        }
        Ok(Self { text: cron.to_owned(), cron: parsed, timezone: timezone.to_owned(), zone })
    }

    /// The cron as it was given.
    #[must_use]
    pub fn cron(&self) -> &str {
        &self.text
    }

    /// The zone's IANA name.
    #[must_use]
    pub fn timezone(&self) -> &str {
        &self.timezone
    }

    /// The zone's rules.
    #[must_use]
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The tick that falls into `period`; `None` if the cron does not fire in that week.
    ///
    /// # Errors
    /// [`CalendarError::TwiceAWeek`] when there are two, so that none can be called the period's.
    pub fn tick_of(&self, period: Period) -> Result<Option<Timestamp>, CalendarError> {
        let Some(monday) = period.monday().map(|date| date.at(0, 0, 0, 0)) else {
            return Ok(None);
        };
        let mut ticks = self.ticks(monday).take_while(|tick| period_of(*tick) == period);
        let Some(first) = ticks.next() else { return Ok(None) };
        match ticks.next() {
            None => Ok(self.instant(first)),
            Some(second) => Err(self.twice(first, second)),
        }
    }

    /// The first tick after `instant`; `None` only at the end of representable time, or where the
    /// cron never fires.
    #[must_use]
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        // Some zone once skipped a whole day, so a tick's instant may lie that far from its writing.
        let start = self.wall(instant).checked_sub(Span::new().days(2)).ok()?;
        self.ticks(start).filter_map(|tick| self.instant(tick)).find(|tick| *tick > instant)
    }

    /// The last tick before `instant`; `None` only at the beginning of representable time, or where
    /// the cron never fires.
    #[must_use]
    pub fn last_before(&self, instant: Timestamp) -> Option<Timestamp> {
        let start = self.wall(instant).checked_add(Span::new().days(2)).ok()?;
        self.ticks_back(start).filter_map(|tick| self.instant(tick)).find(|tick| *tick < instant)
    }

    /// What `period` covers, half-open: from the tick before (the previous week's, for a weekly
    /// cron) to its own tick. It depends on nothing else, so whoever computes it, and whenever, gets
    /// the same.
    ///
    /// # Errors
    /// [`CalendarError::NoTick`] where the cron does not fire in that week, and those of
    /// [`tick_of`](Self::tick_of).
    pub fn window(&self, period: Period) -> Result<(Timestamp, Timestamp), CalendarError> {
        let none = || CalendarError::NoTick { cron: self.text.clone(), period };
        let end = self.tick_of(period)?.ok_or_else(none)?;
        Ok((self.last_before(end).ok_or_else(none)?, end))
    }

    /// Checks the ticks of the [`YEARS_CHECKED`] years after `from`: at most one in an ISO week, and
    /// none where the zone's clocks change or in the hour before.
    ///
    /// # Errors
    /// [`CalendarError::TwiceAWeek`], [`CalendarError::ClockChange`] or [`CalendarError::Never`].
    pub fn check(&self, from: Timestamp) -> Result<(), CalendarError> {
        let now = self.wall(from);
        let end = now.saturating_add(Span::new().years(YEARS_CHECKED));
        let start = period_of(now).monday().map_or(now, |monday| monday.at(0, 0, 0, 0));
        let mut ticks: Vec<DateTime> = Vec::new();
        for tick in self.ticks(start).take_while(|tick| *tick < end) {
            if let Some(last) = ticks.last()
                && period_of(*last) == period_of(tick)
            {
                return Err(self.twice(*last, tick));
            }
            ticks.push(tick);
        }
        ticks.retain(|tick| *tick >= now);
        if ticks.is_empty() {
            return Err(CalendarError::Never(self.text.clone()));
        }
        match ticks.iter().find_map(|tick| self.change_at(*tick).map(|change| (*tick, change))) {
            None => Ok(()),
            Some((at, change)) => Err(CalendarError::ClockChange {
                cron: self.text.clone(),
                timezone: self.timezone.clone(),
                change,
                at,
                safe: self.safe_time(at.time(), &ticks),
            }),
        }
    }

    /// The whole or half hour nearest to `time` that is away from every change on the day of every
    /// tick.
    fn safe_time(&self, time: Time, ticks: &[DateTime]) -> Option<Time> {
        let minutes = |time: Time| i32::from(time.hour()) * 60 + i32::from(time.minute());
        let mut candidates: Vec<Time> = (0..24)
            .flat_map(|hour| [Time::constant(hour, 0, 0, 0), Time::constant(hour, 30, 0, 0)])
            .collect();
        candidates.sort_by_key(|candidate| (minutes(*candidate) - minutes(time)).abs());
        candidates.into_iter().find(|candidate| {
            ticks.iter().all(|tick| self.change_at(tick.date().to_datetime(*candidate)).is_none())
        })
    }

    /// What the clocks do at `tick` or within the hour after it. A quarter of an hour at a time: no
    /// zone changes its clocks by less.
    fn change_at(&self, tick: DateTime) -> Option<ClockChange> {
        (0..=4).find_map(|quarters: i64| {
            self.change_exactly_at(tick.checked_add(Span::new().minutes(quarters * 15)).ok()?)
        })
    }

    fn change_exactly_at(&self, tick: DateTime) -> Option<ClockChange> {
        match self.zone.to_ambiguous_timestamp(tick).offset() {
            AmbiguousOffset::Unambiguous { .. } => None,
            AmbiguousOffset::Gap { .. } => Some(ClockChange::Gap),
            AmbiguousOffset::Fold { .. } => Some(ClockChange::Overlap),
        }
    }

    /// The instant of a tick. One that `check` would refuse (a zone's rules may change later) still
    /// gets one: the first of two, and beside a gap, on the side that lies in the tick's own week.
    fn instant(&self, tick: DateTime) -> Option<Timestamp> {
        let after = self.zone.to_ambiguous_timestamp(tick).compatible().ok()?;
        if Period::of(after, &self.zone) == period_of(tick) {
            return Some(after);
        }
        self.zone.to_ambiguous_timestamp(tick).earlier().ok()
    }

    fn wall(&self, instant: Timestamp) -> DateTime {
        self.zone.to_datetime(instant)
    }

    /// The ticks from `start` on, as they are written.
    fn ticks(&self, start: DateTime) -> impl Iterator<Item = DateTime> {
        let first = self.cron.find_next_occurrence(&start, true).ok();
        std::iter::successors(first, |tick| self.cron.find_next_occurrence(tick, false).ok())
    }

    /// The ticks from `start` backwards, as they are written.
    fn ticks_back(&self, start: DateTime) -> impl Iterator<Item = DateTime> {
        let first = self.cron.find_previous_occurrence(&start, true).ok();
        std::iter::successors(first, |tick| self.cron.find_previous_occurrence(tick, false).ok())
    }

    fn twice(&self, first: DateTime, second: DateTime) -> CalendarError {
        CalendarError::TwiceAWeek {
            cron: self.text.clone(),
            period: period_of(first),
            first,
            second,
        }
    }
}

fn period_of(tick: DateTime) -> Period {
    Period::of_date(tick.date())
}

/// Whether a number carries one of cron's later flags, as `5L` and `15W` do.
fn has_flag(field: &str) -> bool {
    field.split([',', '-', '/']).any(|part| {
        part.starts_with(|c: char| c.is_ascii_digit()) && part.ends_with(['L', 'l', 'W', 'w'])
    })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn advice(cron: &str, safe: Option<Time>) -> String {
    let Some(safe) = safe else {
        return "no time of that day is safe, so choose another day".to_owned();
    };
    let days: Vec<&str> = cron.split_whitespace().skip(2).collect();
    format!(
        "the nearest safe time is {:02}:{:02}: \"{} {} {}\"",
        safe.hour(),
        safe.minute(),
        safe.minute(),
        safe.hour(),
        days.join(" ")
    )
}

#[cfg(test)]
mod tests;
