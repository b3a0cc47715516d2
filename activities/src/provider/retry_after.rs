//! The header `Retry-After` (RFC 9110, section 10.2.3): how long a provider asks to wait.

use hyper::HeaderMap;
use hyper::header::{DATE, RETRY_AFTER};
use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, SystemTime};

/// A longer wish is cut to this, so that no later sum of times overflows.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long the answer with these headers asks to wait, counted from the answer: never negative
/// and never above [`LONGEST`]. `None` when the header is absent or malformed.
///
/// The header is a number of seconds or an HTTP date. A date is compared with the answer's own
/// `Date` header where there is one, so that two clocks that differ change nothing; otherwise with
/// `now`, the time at which the answer came.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<SignedDuration> {
    let wish = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !wish.is_empty() && wish.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than an i64 holds are a long time, not a malformed one.
        let seconds = wish.parse().unwrap_or(i64::MAX);
        return Some(SignedDuration::from_secs(seconds).min(LONGEST));
    }
    let until = http_date(wish)?;
    let date = headers.get(DATE).and_then(|date| http_date(date.to_str().ok()?));
    let wait = until.duration_since(date.unwrap_or_else(|| now.into())).unwrap_or_default();
    Some(SignedDuration::try_from(wait).map_or(LONGEST, |wait| wait.min(LONGEST)))
}

/// How many seconds the header `name` says until the provider's own rate allows more, as
/// `ratelimit-reset` does (draft-ietf-httpapi-ratelimit-headers). `None` when it is absent or
/// malformed.
#[must_use]
pub fn rate_reset(headers: &HeaderMap, name: &str) -> Option<SignedDuration> {
    let seconds: u32 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    Some(SignedDuration::from_secs(seconds.into()).min(LONGEST))
}

/// How long it is until the time that the header `name` says, in seconds since 1970, as SendGrid's
/// `X-RateLimit-Reset` does. It is compared with the answer's own `Date` where there is one,
/// otherwise with `now`. `None` when it is absent or malformed.
#[must_use]
pub fn rate_reset_at(headers: &HeaderMap, name: &str, now: Timestamp) -> Option<SignedDuration> {
    let until: u32 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until.into());
    let date = headers.get(DATE).and_then(|date| http_date(date.to_str().ok()?));
    let wait = until.duration_since(date.unwrap_or_else(|| now.into())).unwrap_or_default();
    Some(SignedDuration::try_from(wait).map_or(LONGEST, |wait| wait.min(LONGEST)))
}

/// Reads an HTTP date in any of the three forms that RFC 9110 (5.6.7) obliges a reader to take.
fn http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn wait(wish: &str, date: Option<&str>) -> Option<SignedDuration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(wish).unwrap());
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        retry_after(&headers, "1994-11-06T08:49:37Z".parse().unwrap())
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(wait("120", None), Some(SignedDuration::from_secs(120)));
        assert_eq!(wait(" 0 ", None), Some(SignedDuration::ZERO));
        assert_eq!(wait("99999999999999999999999", None), Some(LONGEST));
    }

    #[test]
    fn every_form_of_a_date_is_read_and_compared_with_the_servers_clock() {
        let minute = Some(SignedDuration::from_secs(60));
        for date in [
            "Sun, 06 Nov 1994 08:50:37 GMT",
            "Sunday, 06-Nov-94 08:50:37 GMT",
            "Sun Nov  6 08:50:37 1994",
        ] {
            assert_eq!(wait(date, None), minute, "{date}");
        }
        // The server's clock is a day ahead of ours.
        let ahead = Some("Mon, 07 Nov 1994 08:49:37 GMT");
        assert_eq!(wait("Mon, 07 Nov 1994 08:50:37 GMT", ahead), minute);
    }

    #[test]
    fn a_date_that_is_over_asks_for_no_wait() {
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT", None), Some(SignedDuration::ZERO));
        assert_eq!(wait("Fri, 31 Dec 9999 23:59:59 GMT", None), Some(LONGEST));
    }

    #[test]
    fn a_providers_own_rate_header_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-reset", HeaderValue::from_static("7"));
        assert_eq!(rate_reset(&headers, "ratelimit-reset"), Some(SignedDuration::from_secs(7)));
        headers.insert("ratelimit-reset", HeaderValue::from_static("soon"));
        assert_eq!(rate_reset(&headers, "ratelimit-reset"), None);
    }

    #[test]
    fn a_time_in_seconds_is_compared_with_the_servers_clock() {
        let at = |time: &'static str, date: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-reset", HeaderValue::from_static(time));
            if let Some(date) = date {
                headers.insert(DATE, HeaderValue::from_static(date));
            }
            let now = Timestamp::from_second(784_111_770).unwrap();
            rate_reset_at(&headers, "x-ratelimit-reset", now)
        };
        assert_eq!(at("784111800", None), Some(SignedDuration::from_secs(30)));
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at("784111800", date), Some(SignedDuration::from_secs(23)));
        assert_eq!(at("7", None), Some(SignedDuration::ZERO));
        assert_eq!(at("4294967295", None), Some(LONGEST));
        assert_eq!(at("soon", None), None);
    }

    #[test]
    fn what_is_malformed_says_nothing() {
        for wish in ["", "soon", "-5", "1.5", "0x10", "Sun, 06 Nov 1994"] {
            assert_eq!(wait(wish, None), None, "{wish:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }
}
