//! Who may ask, and who is asking: the operator's token, a session that it opened, or a proxy that has
//! asked for the name itself.
//!
//! The API takes the token alone, so that no browser can be made to use it. The console takes a session
//! or the proxy's word, and every change that it is asked for must carry the session's own mark, which
//! another site cannot know. Where neither token nor proxy is set, which only loopback allows, the
//! console shows and changes nothing.

mod failures;
mod seal;

use crate::cli::UsageError;
use crate::config::secrets::HTTP_TOKEN;
use crate::config::{Config, Secrets};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use data_encoding::BASE64URL_NOPAD;
use digest_activities::message::Redacted;
use digest_activities::webhook::Seldom;
use digest_workflows::signal::check_words;
use failures::Failures;
use jiff::{SignedDuration, Timestamp};
use seal::Seal;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A token of fewer characters can be guessed.
const TOKEN_CHARS_MIN: usize = 16;
/// A session ends after so long: a shift.
const SESSION: SignedDuration = SignedDuration::from_hours(12);
/// What a proxy adds.
const PROXY_HEADERS: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];
/// Who is named in the audit where a caller of the API names nobody.
const API: &str = "api";

/// Decides who may ask.
pub struct Access {
    token: Option<Redacted<String>>,
    proxy: Option<Proxy>,
    seal: Seal,
    secure: bool,
    failures: Failures,
    wrong: Seldom,
}

/// A proxy that has asked who somebody is.
struct Proxy {
    header: HeaderName,
    from: Vec<IpAddr>,
}

/// Whoever is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name that decisions carry.
    pub name: String,
    /// The mark that each change must carry; `None` for one who may only look.
    pub mark: Option<String>,
    /// Whether the name came with a session, which can be ended.
    pub signed_in: bool,
}

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing is set that could be presented.
    #[error("no token is set, so nobody can be let in; set {HTTP_TOKEN} and restart the worker")]
    NoToken,
    /// Nothing was presented.
    #[error("present the operator's token, as \"Authorization: Bearer …\"")]
    Missing,
    /// The wrong thing was presented.
    #[error("this is not the operator's token; it is the value of {HTTP_TOKEN} at the worker")]
    Wrong,
    /// Too many wrong ones came from there.
    #[error("too many wrong tokens came from this address; try again in {} seconds", .0.as_secs().max(1))]
    Wait(Duration),
    /// The page was asked for under a name that is not this machine's.
    #[error(
        "without a token, the console answers on this machine only, at http://127.0.0.1 or http://localhost"
    )]
    Host,
    /// The change does not carry the session's mark, or comes from another site.
    #[error(
        "the form was not one of this session, so nothing was changed; load the page again and repeat"
    )]
    Forged,
    /// The name is no name.
    #[error("write a name of at most 60 characters, without an address")]
    Name,
}

impl Access {
    /// What `[http]` and the environment say.
    ///
    /// # Errors
    /// [`UsageError`] where strangers could reach the console and nothing keeps them out, or the token
    /// is too short to.
    pub fn new(config: &Config, secrets: &Secrets) -> Result<Self, UsageError> {
        let http = &config.http;
        let token = secrets.http_token.clone();
        if token.as_ref().is_some_and(|token| token.reveal().chars().count() < TOKEN_CHARS_MIN) {
            return Err(UsageError(format!(
                "{HTTP_TOKEN} has fewer than {TOKEN_CHARS_MIN} characters; set a long random text, \
                 such as that of `openssl rand -hex 32`"
            )));
        }
        let proxy = http
            .user_header
            .as_ref()
            .map(|header| Proxy { header: header.clone(), from: http.trusted_proxies.clone() });
        let is_local = http.listen.ip().is_loopback();
        if !is_local && token.is_none() && proxy.is_none() {
            return Err(UsageError(format!(
                "[http] listen = {} is reached from outside this machine, and nothing keeps strangers \
                 from the console there; set {HTTP_TOKEN} to a long random text, or [http] \
                 user_header and trusted_proxies behind a proxy that signs people in, or listen on \
                 127.0.0.1",
                http.listen
            )));
        }
        let seal = Seal::new(token.as_ref());
        Ok(Self {
            token,
            proxy,
            seal,
            secure: !is_local,
            failures: Failures::default(),
            wrong: Seldom::default(),
        })
    }

    /// Whether anybody can sign in with a token.
    #[must_use]
    pub const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Who calls the API.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn of_api(&self, from: IpAddr, headers: &HeaderMap) -> Result<Caller, Denied> {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(given) = given else {
            return Err(if self.has_token() { Denied::Missing } else { Denied::NoToken });
        };
        // The scheme's name is written in either case (RFC 9110, 11.1).
        let (scheme, given) = given.split_once(' ').unwrap_or_default();
        let given = if scheme.eq_ignore_ascii_case("bearer") { given.trim() } else { "" };
        self.check(from, given)?;
        Ok(Caller { name: API.to_owned(), mark: None, signed_in: false })
    }

    /// Who looks at the console.
    ///
    /// # Errors
    /// [`Denied::Missing`] for one who has to sign in, or another [`Denied`].
    pub fn of_page(&self, from: IpAddr, headers: &HeaderMap) -> Result<Caller, Denied> {
        if let Some(proxy) = &self.proxy
            && proxy.from.contains(&from)
            && let Some(name) = headers.get(&proxy.header).and_then(|value| value.to_str().ok())
        {
            let name = name_of(name)?;
            let mark = Some(self.seal.sign("mark of a proxy's user", &name));
            return Ok(Caller { name, mark, signed_in: false });
        }
        if self.has_token() {
            return self.session(headers, Timestamp::now()).ok_or(Denied::Missing);
        }
        if self.proxy.is_some() {
            return Err(Denied::NoToken);
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // A name of somebody else's that leads here would let their page read this one.
        let came_through_a_proxy = PROXY_HEADERS.iter().any(|name| headers.contains_key(*name));
        if came_through_a_proxy || !is_loopback(host) {
            return Err(Denied::Host);
        }
        Ok(Caller { name: String::new(), mark: None, signed_in: false })
    }

    /// Whether a change that `caller` asks for is their own.
    ///
    /// # Errors
    /// [`Denied::Forged`] where it is not, [`Denied::NoToken`] for one who may only look.
    pub fn may_change(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        mark: &str,
    ) -> Result<(), Denied> {
        let own = caller.mark.as_deref().ok_or(Denied::NoToken)?;
        if !self.seal.is_same(own, mark) || !is_own_site(headers) {
            return Err(Denied::Forged);
        }
        Ok(())
    }

    /// Opens a session for `name`; returns its cookie.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn sign_in(&self, from: IpAddr, token: &str, name: &str) -> Result<String, Denied> {
        self.check(from, token.trim())?;
        let name = name_of(name)?;
        let ends = (Timestamp::now() + SESSION).as_second();
        let body = format!(
            "{ends}.{}.{}",
            Uuid::new_v4().simple(),
            BASE64URL_NOPAD.encode(name.as_bytes())
        );
        let session = format!("{body}.{}", self.seal.sign("session", &body));
        Ok(self.cookie(&session, SESSION.as_secs()))
    }

    /// The cookie that ends a session in the browser.
    #[must_use]
    pub fn sign_out(&self) -> String {
        self.cookie("", 0)
    }

    /// Compares a token without telling by its time how much of it is right.
    fn check(&self, from: IpAddr, given: &str) -> Result<(), Denied> {
        let now = Instant::now();
        let token = self.token.as_ref().ok_or(Denied::NoToken)?;
        self.failures.may_try(from, now).map_err(Denied::Wait)?;
        if self.seal.is_same(token.reveal(), given) {
            self.failures.succeeded(from);
            return Ok(());
        }
        self.failures.failed(from, now);
        if let Some(count) = self.wrong.count(now) {
            tracing::warn!(count, last = %from, "wrong tokens were presented to API or console");
        }
        Err(Denied::Wrong)
    }

    fn session(&self, headers: &HeaderMap, now: Timestamp) -> Option<Caller> {
        let name = format!("{}=", self.cookie_name());
        let value = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .find_map(|cookie| cookie.trim().strip_prefix(&name))?;
        let (body, seal) = value.rsplit_once('.')?;
        if !self.seal.verify("session", body, seal) {
            return None;
        }
        let mut parts = body.split('.');
        let ends = Timestamp::from_second(parts.next()?.parse().ok()?).ok()?;
        let name = BASE64URL_NOPAD.decode(parts.nth(1)?.as_bytes()).ok()?;
        let name = String::from_utf8(name).ok()?;
        let mark = Some(self.seal.sign("mark of a session", value));
        (now < ends).then_some(Caller { name, mark, signed_in: true })
    }

    /// With the prefix, a browser takes it only from this host, over TLS, for every path (RFC 6265bis,
    /// 4.1.3.2).
    const fn cookie_name(&self) -> &'static str {
        if self.secure { "__Host-digestd" } else { "digestd" }
    }

    fn cookie(&self, value: &str, seconds: i64) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        let name = self.cookie_name();
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }
}

/// A person's name as the audit may have it. Of an address, only the part before the `@` is.
fn name_of(given: &str) -> Result<String, Denied> {
    const CHARS_MAX: usize = 60;
    let name = given.trim().split('@').next().unwrap_or_default().trim();
    let is_plain = !name.is_empty()
        && name.chars().count() <= CHARS_MAX
        && !name.chars().any(char::is_control)
        && check_words(name, "the name").is_ok();
    if is_plain { Ok(name.to_owned()) } else { Err(Denied::Name) }
}

/// Whether `host`, with or without a port, is this machine's own name for itself.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether the browser says that the request comes from a page of ours. One that says nothing is judged
/// by the mark alone.
fn is_own_site(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    if let Some(site) = site {
        // A proxy may have changed the host, and no page can write this.
        return site == "same-origin" || site == "none";
    }
    match (text(ORIGIN), text(HOST)) {
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
