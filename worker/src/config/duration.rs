//! Durations as people write them: `30s`, `15m`, `1h 30m`, `5d`. A day is 24 hours.

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// No duration of the configuration is longer (ten years), so that adding it to a time never
/// overflows.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 3_660);

/// Reads a duration.
///
/// # Errors
/// What is wrong with it and how to write it, when it is not a duration, not positive, longer than
/// ten years, or counted in months or years, whose length is not fixed.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let span: Span = text.trim().parse().map_err(|_| malformed(text))?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("{text:?} has months or years, which vary in length; write days"))?;
    if duration <= SignedDuration::ZERO {
        return Err(format!("{text:?} must be longer than nothing"));
    }
    if duration > LONGEST {
        return Err(format!("{text:?} is longer than ten years"));
    }
    Ok(duration)
}

fn malformed(text: &str) -> String {
    format!(
        "{text:?} is not a duration; write a number with its unit, such as \"30s\", \"15m\", \"6h\" or \"5d\""
    )
}

/// The duration as it is written in the configuration: `1h 30m`. Milliseconds are its finest unit.
#[must_use]
pub fn show(duration: SignedDuration) -> String {
    let mut rest = duration.as_millis().unsigned_abs();
    let mut parts = Vec::new();
    for (unit, length) in
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
    {
        if rest >= length {
            parts.push(format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (text, seconds) in [
            ("30s", 30),
            ("15m", 900),
            ("1h 30m", 5_400),
            ("6h", 21_600),
            ("5d", 432_000),
            ("14d", 1_209_600),
            ("400d", 34_560_000),
            ("2w", 1_209_600),
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(duration, SignedDuration::from_secs(seconds), "{text}");
            assert_eq!(parse(&show(duration)), Ok(duration), "{text}");
        }
        assert_eq!(show(SignedDuration::from_secs(93_784)), "1d 2h 3m 4s");
        assert_eq!(show(SignedDuration::from_millis(1_500)), "1s 500ms");
    }

    #[test]
    fn what_is_no_duration_is_refused_with_advice() {
        assert_eq!(
            parse("30").unwrap_err(),
            "\"30\" is not a duration; write a number with its unit, such as \"30s\", \"15m\", \
             \"6h\" or \"5d\""
        );
        for text in ["", "s", "-5m", "0s", "1 month", "1y", "99999d", "soon", "5m ago"] {
            assert!(parse(text).is_err(), "{text} was taken for a duration");
        }
    }
}
