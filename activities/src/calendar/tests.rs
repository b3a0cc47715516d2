use super::*;
use jiff::civil::date;
use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

fn calendar(cron: &str, zone: &str) -> Calendar {
    Calendar::new(cron, zone).unwrap()
}

fn period(text: &str) -> Period {
    Period::parse(text).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn today() -> Timestamp {
    at("2026-11-30T12:00:00Z")
}

/// The ticks of the weeks of `years` years from `first`: one each, which lies in its week and after
/// the one before.
fn one_tick_a_week(calendar: &Calendar, first: jiff::civil::Date, years: i16) -> Vec<Timestamp> {
    let end = Period::of_date(first.checked_add(Span::new().years(years)).unwrap());
    let mut week = Period::of_date(first);
    let mut ticks: Vec<Timestamp> = Vec::new();
    while week < end {
        let tick = calendar.tick_of(week).unwrap();
        let tick = tick.unwrap_or_else(|| panic!("{calendar:?}: no tick in {week}"));
        assert_eq!(Period::of(tick, calendar.zone()), week, "{calendar:?}: {tick}");
        assert!(ticks.last().is_none_or(|last| *last < tick), "{calendar:?}: {tick}");
        ticks.push(tick);
        week = week.next().unwrap();
    }
    ticks
}

/// Forwards and backwards, the ticks follow each other without one between them.
fn in_sequence(calendar: &Calendar, ticks: &[Timestamp]) {
    for pair in ticks.windows(2) {
        assert_eq!(calendar.next_after(pair[0]), Some(pair[1]), "{calendar:?}");
        assert_eq!(calendar.last_before(pair[1]), Some(pair[0]), "{calendar:?}");
    }
}

#[test]
fn a_tick_beside_a_change_of_the_clocks_is_refused_with_a_safe_time_and_all_others_run_once() {
    use ClockChange::{Gap, Overlap};
    let refused = [
        ("America/New_York", "SUN", (0, 30), Overlap, (3, 0)),
        ("America/New_York", "SUN", (1, 30), Gap, (3, 0)),
        ("America/New_York", "SUN", (2, 30), Gap, (3, 0)),
        ("Europe/Paris", "SUN", (1, 30), Gap, (0, 30)),
        ("Europe/Paris", "SUN", (2, 30), Gap, (3, 0)),
        ("America/Santiago", "SUN", (0, 30), Gap, (1, 0)),
        ("America/Santiago", "SAT", (23, 30), Overlap, (21, 30)),
        ("Australia/Lord_Howe", "SUN", (0, 30), Overlap, (0, 0)),
        ("Australia/Lord_Howe", "SUN", (1, 30), Overlap, (2, 30)),
    ];
    let zones = ["America/New_York", "Europe/Paris", "America/Santiago", "Australia/Lord_Howe"];
    let mut seen = 0;
    for zone in zones {
        for day in ["MON", "SAT", "SUN"] {
            for (hour, minute) in [(0, 30), (1, 30), (2, 30), (9, 0), (23, 30)] {
                let calendar = calendar(&format!("{minute} {hour} * * {day}"), zone);
                let answer = calendar.check(today());
                let expected = refused
                    .iter()
                    .find(|(z, d, time, ..)| *z == zone && *d == day && *time == (hour, minute));
                let Some((.., change, safe)) = expected else {
                    assert_eq!(answer, Ok(()), "{zone} {day} {hour}:{minute}");
                    in_sequence(&calendar, &one_tick_a_week(&calendar, date(2026, 11, 30), 2));
                    continue;
                };
                seen += 1;
                let Err(CalendarError::ClockChange { change: found, safe: Some(time), .. }) =
                    answer
                else {
                    panic!("{zone} {day} {hour}:{minute} was answered with {answer:?}");
                };
                assert_eq!(found, *change, "{zone} {day} {hour}:{minute}");
                assert_eq!((time.hour(), time.minute()), *safe, "{zone} {day} {hour}:{minute}");
                // What is advised passes.
                let advised = format!("{} {} * * {day}", time.minute(), time.hour());
                assert_eq!(Calendar::new(&advised, zone).unwrap().check(today()), Ok(()));
            }
        }
    }
    assert_eq!(seen, refused.len());
}

#[test]
fn the_refusal_names_the_date_and_the_cron_to_write() {
    let error = calendar("30 2 * * SUN", "America/New_York").check(today()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cron \"30 2 * * SUN\" in America/New_York may be skipped: the clocks go forward then, \
         or in the hour after it, as on 2027-03-14T02:30:00; the nearest safe time is 03:00: \
         \"0 3 * * SUN\""
    );
}

#[test]
fn the_hour_before_a_change_is_refused_to_the_minute() {
    let answer = |hour, minute| {
        calendar(&format!("{minute} {hour} * * SUN"), "Europe/Berlin").check(today()).is_ok()
    };
    // The clocks of Berlin change at 02:00 and at 03:00.
    assert!(answer(0, 59));
    assert!(!answer(1, 0) && !answer(1, 15) && !answer(2, 59));
    assert!(answer(3, 0));
    // Those of Lord Howe go back from 02:00 to 01:30, and forward from 02:00 to 02:30.
    let answer = |hour, minute| {
        calendar(&format!("{minute} {hour} * * SUN"), "Australia/Lord_Howe").check(today()).is_ok()
    };
    assert!(answer(0, 29) && !answer(0, 31) && !answer(1, 29) && !answer(2, 29) && answer(2, 30));
}

#[test]
fn a_cron_with_two_ticks_in_a_week_is_refused() {
    for cron in ["0 9 * * *", "0 9 * * MON,THU", "0,30 9 * * MON", "0 9 1,3 * *", "* * * * *"] {
        let answer = calendar(cron, "Europe/Berlin").check(today());
        assert!(matches!(answer, Err(CalendarError::TwiceAWeek { .. })), "{cron}: {answer:?}");
    }
    let error = calendar("0 9 * * MON,THU", "Europe/Berlin").check(today()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cron \"0 9 * * MON,THU\" fires twice in 2026-W49, at 2026-11-30T09:00:00 and at \
         2026-12-03T09:00:00, and a period is one week; choose one day and one time"
    );
    let tick = calendar("0 9 * * MON,THU", "Europe/Berlin").tick_of(period("2026-W50"));
    assert!(matches!(tick, Err(CalendarError::TwiceAWeek { .. })));
}

#[test]
fn a_monthly_cron_has_weeks_without_a_tick() {
    // Both day fields must match: the first Monday of a month, as the engine reads it.
    let monthly = calendar("0 9 1-7 * MON", "Europe/Berlin");
    assert_eq!(monthly.check(today()), Ok(()));
    assert_eq!(monthly.tick_of(period("2026-W50")).unwrap(), Some(at("2026-12-07T08:00:00Z")));
    assert_eq!(monthly.tick_of(period("2026-W51")).unwrap(), None);
    assert_eq!(
        monthly.window(period("2026-W51")).unwrap_err().to_string(),
        "the cron \"0 9 1-7 * MON\" has no tick in 2026-W51, so this period has no beginning and end"
    );
    let (start, end) = monthly.window(period("2027-W01")).unwrap();
    assert_eq!((start, end), (at("2026-12-07T08:00:00Z"), at("2027-01-04T08:00:00Z")));
}

#[test]
fn the_window_runs_from_the_previous_tick_to_this_one_across_a_change_of_the_clocks() {
    let weekly = calendar("0 9 * * MON", "Europe/Berlin");
    let (start, end) = weekly.window(period("2026-W44")).unwrap();
    assert_eq!((start, end), (at("2026-10-19T07:00:00Z"), at("2026-10-26T08:00:00Z")));
    assert_eq!(weekly.window(period("2026-W43")).unwrap().1, start);
}

#[test]
fn week_numbers_at_year_ends_follow_iso_8601() {
    for (day, week) in [
        (date(2024, 12, 30), "2025-W01"),
        (date(2025, 12, 29), "2026-W01"),
        (date(2026, 12, 28), "2026-W53"),
        (date(2027, 1, 3), "2026-W53"),
        (date(2027, 1, 4), "2027-W01"),
        (date(2021, 1, 1), "2020-W53"),
    ] {
        let name = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
            [usize::try_from(day.weekday().to_monday_zero_offset()).unwrap()];
        let weekly = calendar(&format!("0 9 * * {name}"), "Europe/Berlin");
        let tick = weekly.tick_of(period(week)).unwrap().unwrap();
        assert_eq!(tick.to_zoned(weekly.zone().clone()).date(), day, "{week}");
    }
}

#[test]
fn only_what_the_engine_reads_the_same_way_is_a_cron() {
    for cron in [
        "",
        "0 9 * *",
        "0 0 9 * * MON",
        "@weekly",
        "0 9 * * MON#1",
        "0 9 L * *",
        "0 9 * * 5L",
        "0 9 15W * *",
        "0 9 ? * MON",
        "0 9 * * +MON",
        "60 9 * * MON",
        "0 9 * * Funday",
        "CRON_TZ=UTC 0 9 * * MON",
    ] {
        let answer = Calendar::new(cron, "Europe/Berlin");
        assert!(matches!(answer, Err(CalendarError::Cron { .. })), "{cron}: {answer:?}");
    }
    for cron in ["0 9 * * MON", "0 9 * * mon", "0 9 * * 1", "0 9 * JUL,AUG FRI", "*/30 9 * * 7"] {
        assert!(Calendar::new(cron, "Europe/Berlin").is_ok(), "{cron}");
    }
    let never = calendar("0 9 30 2 *", "Europe/Berlin");
    assert!(matches!(never.check(today()), Err(CalendarError::Never(_))));
    assert_eq!(never.next_after(today()), None);
}

#[test]
fn a_zone_is_an_iana_name_in_its_own_spelling() {
    let zone = |name| Calendar::new("0 9 * * MON", name).map(|_| ());
    assert_eq!(zone("Europe/Berlin"), Ok(()));
    assert_eq!(zone("UTC"), Ok(()));
    assert_eq!(zone("Europe/Berln"), Err(CalendarError::Zone("Europe/Berln".to_owned())));
    assert!(matches!(zone("europe/berlin"), Err(CalendarError::ZoneSpelling { .. })));
}

#[test]
fn in_every_zone_each_week_of_ten_years_has_exactly_one_tick() {
    let mut zones = 0;
    for (i, name) in TimeZoneDatabase::bundled().available().enumerate() {
        // Sunday at the hours at which clocks change, over years in which a zone skipped a day.
        let cron = format!("30 {} * * SUN", [0, 1, 2, 23][i % 4]);
        if let Ok(calendar) = Calendar::new(&cron, name.as_str()) {
            zones += 1;
            let ticks = one_tick_a_week(&calendar, date(2007, 1, 1), 10);
            in_sequence(&calendar, &ticks[i % 100..][..8]);
        }
    }
    assert!(zones > 400, "only {zones} zones were tried");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_weekly_cron_has_one_tick_a_week(
        zone in prop::sample::select(vec![
            "Africa/Casablanca", "America/St_Johns", "America/Santiago", "Antarctica/Troll",
            "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Dublin", "Pacific/Apia", "UTC",
        ]),
        minute in 0..60, hour in 0..24, day in 0..7, year in 1990_i16..2035,
    ) {
        let calendar = calendar(&format!("{minute} {hour} * * {day}"), zone);
        in_sequence(&calendar, &one_tick_a_week(&calendar, date(year, 1, 1), 1));
    }
}
