//! Tests of who may ask.

use super::*;
use axum::http::HeaderValue;
use std::net::Ipv4Addr;
use std::path::Path;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const TOKEN: &str = "correct horse battery staple";

fn config(http: &str) -> Config {
    let text = format!(
        "[source]\ncustomers = \"select id as customer_id, email as address from c\"\n\
         still_wanted = \"select 1\"\n[campaign]\ntimezone = \"UTC\"\n[message]\n\
         from = \"Shop <a@shop.example>\"\n[provider]\nkind = \"sandbox\"\n[http]\n{http}\n"
    );
    Config::parse(&text, Path::new("digestd.toml")).unwrap()
}

fn access(http: &str, token: Option<&str>) -> Result<Access, UsageError> {
    let mut secrets = Secrets::default();
    secrets.http_token = token.map(|token| Redacted::new(token.to_owned()));
    Access::new(&config(http), &secrets)
}

fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    all.iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect()
}

/// The cookie as a browser sends it back.
fn sent_back(cookie: &str) -> HeaderMap {
    headers(&[("cookie", cookie.split(';').next().unwrap())])
}

#[test]
fn strangers_are_kept_out_or_the_worker_does_not_start() {
    let outside = "listen = \"0.0.0.0:8080\"";
    let error = access(outside, None).err().unwrap().0;
    assert!(error.contains("DIGESTD_HTTP_TOKEN") && error.contains("user_header"), "{error}");
    assert!(access(outside, Some(TOKEN)).is_ok());
    assert!(access("listen = \"127.0.0.1:8080\"", None).is_ok());
    let proxied = format!("{outside}\nuser_header = \"X-User\"\ntrusted_proxies = [\"192.0.2.7\"]");
    assert!(access(&proxied, None).is_ok());
    assert!(access(outside, Some("short")).err().unwrap().0.contains("characters"));
}

#[test]
fn the_api_takes_the_token_and_nothing_else() {
    let access = access("", Some(TOKEN)).unwrap();
    let with = |value: &str| access.of_api(HERE, &headers(&[("authorization", value)]));
    assert_eq!(with(&format!("Bearer {TOKEN}")).unwrap().name, "api");
    assert_eq!(with(&format!("bearer {TOKEN}")).unwrap().name, "api");
    let cookie = access.sign_in(HERE, TOKEN, "ann").unwrap();
    assert_eq!(access.of_api(HERE, &sent_back(&cookie)), Err(Denied::Missing));
    for wrong in ["Bearer", "Bearer wrong", &format!("Basic {TOKEN}"), TOKEN] {
        assert_eq!(with(wrong), Err(Denied::Wrong), "{wrong}");
    }
}

#[test]
fn without_a_token_nobody_may_change_anything_and_no_other_name_leads_here() {
    let access = access("", None).unwrap();
    assert_eq!(access.of_api(HERE, &HeaderMap::new()), Err(Denied::NoToken));
    assert_eq!(access.sign_in(HERE, "", "ann"), Err(Denied::NoToken));
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1"] {
        let caller = access.of_page(HERE, &headers(&[("host", host)])).unwrap();
        assert_eq!(access.may_change(&caller, &HeaderMap::new(), ""), Err(Denied::NoToken));
    }
    let proxied = headers(&[("host", "127.0.0.1:8080"), ("x-forwarded-for", "192.0.2.9")]);
    assert_eq!(access.of_page(HERE, &proxied), Err(Denied::Host));
    for host in ["evil.example", "127.0.0.1.evil.example:8080", ""] {
        assert_eq!(access.of_page(HERE, &headers(&[("host", host)])), Err(Denied::Host), "{host}");
    }
}

#[test]
fn a_session_is_its_own_and_ends() {
    let one = access("", Some(TOKEN)).unwrap();
    assert_eq!(one.of_page(HERE, &HeaderMap::new()), Err(Denied::Missing));
    assert_eq!(one.sign_in(HERE, "wrong", "ann"), Err(Denied::Wrong));
    let cookie = one.sign_in(HERE, TOKEN, "ann").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let back = sent_back(&cookie);
    let caller = one.of_page(HERE, &back).unwrap();
    assert!(caller.signed_in && caller.name == "ann");
    // Another worker under the same token knows it, one under another token doesn't.
    let same = access("", Some(TOKEN)).unwrap();
    assert_eq!(same.of_page(HERE, &back), Ok(caller));
    let other = access("", Some("another token altogether")).unwrap();
    assert_eq!(other.of_page(HERE, &back), Err(Denied::Missing));
    let later = Timestamp::now() + SESSION;
    assert_eq!(one.session(&back, later + SignedDuration::from_secs(1)), None);
    let value = cookie.split(['=', ';']).nth(1).unwrap();
    for at in 0..value.len() {
        let mut bytes = value.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        let back = headers(&[("cookie", &format!("digestd={changed}"))]);
        assert_eq!(one.of_page(HERE, &back), Err(Denied::Missing), "character {at} was changed");
    }
}

#[test]
fn a_change_carries_the_mark_of_its_session_and_comes_from_here() {
    let access = access("listen = \"0.0.0.0:8080\"", Some(TOKEN)).unwrap();
    let session = |name| {
        let cookie = access.sign_in(HERE, TOKEN, name).unwrap();
        assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Secure"), "{cookie}");
        access.of_page(HERE, &sent_back(&cookie)).unwrap()
    };
    let (ann, other) = (session("ann"), session("ann"));
    let mark = ann.mark.clone().unwrap();
    assert_eq!(access.may_change(&ann, &HeaderMap::new(), &mark), Ok(()));
    let same = headers(&[("origin", "https://digest.shop"), ("host", "digest.shop")]);
    assert_eq!(access.may_change(&ann, &same, &mark), Ok(()));
    // Behind a proxy that asks under another name.
    let behind = headers(&[
        ("origin", "https://digest.shop"),
        ("host", "10.0.0.7:8080"),
        ("sec-fetch-site", "same-origin"),
    ]);
    assert_eq!(access.may_change(&ann, &behind, &mark), Ok(()));
    for wrong in ["", "x", other.mark.as_deref().unwrap()] {
        assert_eq!(access.may_change(&ann, &HeaderMap::new(), wrong), Err(Denied::Forged));
    }
    for foreign in [
        &[("origin", "https://evil.example"), ("host", "digest.shop")][..],
        &[("origin", "null"), ("host", "digest.shop")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://a.b"), ("host", "a.b")],
    ] {
        assert_eq!(access.may_change(&ann, &headers(foreign), &mark), Err(Denied::Forged));
    }
}

#[test]
fn the_word_of_a_proxy_counts_only_from_the_proxy() {
    let http = "user_header = \"X-User\"\ntrusted_proxies = [\"192.0.2.7\"]";
    let access = access(http, None).unwrap();
    let said = headers(&[("x-user", "ann@shop.example")]);
    let caller = access.of_page(HERE, &said).unwrap();
    // No address goes into the audit.
    assert_eq!(caller.name, "ann");
    let mark = caller.mark.clone().unwrap();
    assert_eq!(access.may_change(&caller, &HeaderMap::new(), &mark), Ok(()));
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));
    assert_eq!(access.of_page(elsewhere, &said), Err(Denied::NoToken));
    assert_eq!(access.of_page(HERE, &HeaderMap::new()), Err(Denied::NoToken));
    assert_eq!(access.of_page(HERE, &headers(&[("x-user", " ")])), Err(Denied::Name));
}

#[test]
fn guessing_is_slowed_down_even_for_the_right_token() {
    let access = access("", Some(TOKEN)).unwrap();
    let guess = |token: &str| access.sign_in(HERE, token, "ann");
    for n in 0..6 {
        assert_eq!(guess(&format!("guess {n}")), Err(Denied::Wrong));
    }
    assert!(matches!(guess(TOKEN), Err(Denied::Wait(_))));
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));
    assert!(access.sign_in(elsewhere, TOKEN, "ann").is_ok());
}
