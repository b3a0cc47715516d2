//! Periods: the ISO 8601 week a message is for, computed from the scheduled instant in the
//! campaign's time zone, never from "now".

use jiff::civil::{Date, ISOWeekDate, Weekday};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One ISO week, written `2026-W42`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period {
    year: i16,
    week: i8,
}

/// Why a text is not a period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// Not of the form `2026-W42`.
    #[error("{0:?} is not a period; write an ISO week such as 2026-W42")]
    Malformed(String),
    /// The year has no such week.
    #[error("there is no week {week} in {year}: its last ISO week is {year}-W{last}")]
    NoSuchWeek {
        /// The ISO year.
        year: i16,
        /// The week asked for.
        week: i8,
        /// The year's last week, 52 or 53.
        last: i8,
    },
}

impl Period {
    /// The period of `instant` (a tick of the schedule) in the campaign's `zone`.
    #[must_use]
    pub fn of(instant: Timestamp, zone: &TimeZone) -> Self {
        Self::of_date(instant.to_zoned(zone.clone()).date())
    }

    /// The period that `date` lies in.
    #[must_use]
    pub fn of_date(date: Date) -> Self {
        let iso = date.iso_week_date();
        Self { year: iso.year(), week: iso.week() }
    }

    /// Reads `2026-W42`.
    ///
    /// # Errors
    /// [`PeriodError`] when the text has another form or the year has no such week.
    pub fn parse(text: &str) -> Result<Self, PeriodError> {
        let malformed = || PeriodError::Malformed(text.to_owned());
        let (year, week) = text.split_once("-W").ok_or_else(malformed)?;
        let digits = |part: &str, n| part.len() == n && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(year, 4) || !digits(week, 2) {
            return Err(malformed());
        }
        let year: i16 = year.parse().map_err(|_| malformed())?;
        let week: i8 = week.parse().map_err(|_| malformed())?;
        if ISOWeekDate::new(year, week, Weekday::Monday).is_ok() {
            return Ok(Self { year, week });
        }
        let last = if ISOWeekDate::new(year, 53, Weekday::Monday).is_ok() { 53 } else { 52 };
        Err(PeriodError::NoSuchWeek { year, week, last })
    }

    /// The Monday that the period begins with. `None` only at the end of representable time.
    #[must_use]
    pub fn monday(self) -> Option<Date> {
        ISOWeekDate::new(self.year, self.week, Weekday::Monday).ok().map(Date::from)
    }

    /// The period one week later. `None` only at the end of representable time.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.monday()?.checked_add(jiff::Span::new().weeks(1)).ok().map(Self::of_date)
    }

    /// The period one week earlier. `None` only at the beginning of representable time.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        self.monday()?.checked_sub(jiff::Span::new().weeks(1)).ok().map(Self::of_date)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.week)
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl TryFrom<String> for Period {
    type Error = PeriodError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn year_ends_follow_iso_8601() {
        for (date, period) in [
            ("2024-12-30", "2025-W01"),
            ("2025-12-29", "2026-W01"),
            ("2026-12-28", "2026-W53"),
            ("2027-01-03", "2026-W53"),
            ("2027-01-04", "2027-W01"),
            ("2021-01-01", "2020-W53"),
        ] {
            let date: Date = date.parse().unwrap();
            assert_eq!(Period::of_date(date).to_string(), period, "{date}");
        }
    }

    #[test]
    fn a_week_that_does_not_exist_is_refused_by_name() {
        let error = Period::parse("2025-W53").unwrap_err();
        assert_eq!(error.to_string(), "there is no week 53 in 2025: its last ISO week is 2025-W52");
        assert!(Period::parse("2026-W53").is_ok());
        for text in
            ["2026-W1", "2026W42", "2026-w42", "26-W42", "2026-W00", "2026-W60", "", "+026-W42"]
        {
            assert!(Period::parse(text).is_err(), "{text} was taken for a period");
        }
    }

    #[test]
    fn the_zone_decides_which_week_an_instant_belongs_to() {
        let instant: Timestamp = "2026-10-11T23:30:00Z".parse().unwrap();
        let zone = |name| TimeZone::get(name).unwrap();
        assert_eq!(Period::of(instant, &zone("Europe/Berlin")).to_string(), "2026-W42");
        assert_eq!(Period::of(instant, &zone("America/New_York")).to_string(), "2026-W41");
    }

    proptest! {
        #[test]
        fn weeks_follow_each_other_and_round_trip(days in 0_i64..20_000) {
            let date = Date::constant(1990, 1, 1).checked_add(jiff::Span::new().days(days)).unwrap();
            let period = Period::of_date(date);
            prop_assert_eq!(Period::parse(&period.to_string()), Ok(period));
            let next = period.next().unwrap();
            prop_assert!(next > period);
            prop_assert_eq!(next.previous(), Some(period));
            prop_assert_eq!(period.monday().map(Period::of_date), Some(period));
        }
    }
}
