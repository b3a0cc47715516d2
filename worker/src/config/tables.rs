//! What is sent, from where and when: the tables `[engine]`, `[ledger]`, `[source]`, `[campaign]`,
//! `[message]`, `[http]` and `[webhooks]`.

use super::database::{Database, ParseDatabase, refuse_password};
use super::reader::{Section, nearest};
use super::secrets;
use super::sending::is_loopback;
use axum::http::HeaderName;
use digest_activities::calendar::{Calendar, CalendarError};
use digest_activities::webhook::Topic;
use digest_workflows::operation::canary::tested_campaign;
use digest_workflows::operation::key::check_campaign;
use jiff::{SignedDuration, Timestamp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use url::Url;

/// `[engine]`: where Temporal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// `host:port`, or a URL. Absent: the `TEMPORAL_*` variables and `temporal.toml` profiles of the
    /// SDK decide.
    pub address: Option<String>,
    /// Absent: that of the SDK's profile, else `default`.
    pub namespace: Option<String>,
    /// The task queue that the workers poll.
    pub task_queue: String,
    /// The web UI, for links, without a slash at the end.
    pub ui_url: String,
}

impl Engine {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let engine = Self {
            address: section.optional("address"),
            namespace: section.optional("namespace"),
            task_queue: section.or("task_queue", "digest".to_owned()),
            ui_url: section.or("ui_url", "http://127.0.0.1:8233".to_owned()),
        };
        if let Some(address) = &engine.address
            && !is_address(address)
        {
            section.refuse(
                "address",
                format!("{address:?} is not host:port, such as \"127.0.0.1:7233\""),
            );
        }
        check_web(section, "ui_url", &engine.ui_url);
        Self { ui_url: engine.ui_url.trim_end_matches('/').to_owned(), ..engine }
    }
}

/// `[ledger]`: where digestd remembers what it sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// `sqlite://…` or `postgres://…`, as written; `DIGESTD_LEDGER_URL` goes before it.
    pub url: String,
    /// The schema that holds the tables in PostgreSQL.
    pub schema: String,
}

impl Ledger {
    pub(super) fn read(section: &mut Section<'_>, directory: &Path) -> Self {
        let ledger = Self {
            url: section.or("url", "sqlite://digestd.db".to_owned()),
            schema: section.or("schema", "digestd".to_owned()),
        };
        check_database(section, &ledger.url, secrets::LEDGER_URL, directory, Database::of_ledger);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !ledger.schema.chars().all(plain)
            || ledger.schema.len() > 63
            || ledger.schema.starts_with(|c: char| c.is_ascii_digit())
        {
            section.refuse(
                "schema",
                format!("{:?} is not made of 1 to 63 of a-z, 0-9 and _", ledger.schema),
            );
        }
        ledger
    }
}

/// `[source]`: the user's customers, rows and consent, by SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As written; absent: the ledger's database. `DIGESTD_SOURCE_URL` goes before it.
    pub url: Option<String>,
    /// Selects the customers of a run: `customer_id`, `address`, and data for the templates.
    pub customers: String,
    /// Selects what each customer's message is about; absent for a message without rows.
    pub rows: Option<String>,
    /// Asked for one customer right before sending; no row means no.
    pub still_wanted: String,
    /// Removes the generated rows of one operation after its delivery.
    pub cleanup: Option<String>,
    /// A cleanup that touches more rows is rolled back.
    pub cleanup_max_rows: u32,
}

impl Source {
    pub(super) fn read(section: &mut Section<'_>, directory: &Path) -> Self {
        let source = Self {
            url: section.optional("url"),
            customers: section.required(
                "customers",
                "it selects who gets the message: \"select id as customer_id, email as address from …\"",
            ),
            rows: section.optional("rows"),
            still_wanted: section.required(
                "still_wanted",
                "it is required because a customer may opt out or be erased after the selection: digestd asks it right before each message and sends nothing where it gives no row, such as \"select 1 from customers where id = :customer_id and digest_opt_in\"",
            ),
            cleanup: section.optional("cleanup"),
            cleanup_max_rows: section.within("cleanup_max_rows", 1_000, 1..=1_000_000),
        };
        if let Some(url) = &source.url {
            check_database(section, url, secrets::SOURCE_URL, directory, Database::of_source);
        }
        source
    }
}

/// `[campaign]`: what is sent, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// The first part of every operation key.
    pub name: String,
    /// How messages travel.
    pub channel: Channel,
    /// When, in five fields.
    pub cron: String,
    /// The IANA zone the cron is meant in; it also decides which week a tick belongs to.
    pub timezone: String,
    /// How long after its tick the engine still starts a run it missed.
    pub catch_up: SignedDuration,
    /// A run that starts later after its tick waits for `resume`.
    pub late_start: SignedDuration,
    /// This long after the tick nothing is sent any more.
    pub useful_for: SignedDuration,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// By e-mail.
    Email,
    /// By text message.
    Sms,
}

impl Campaign {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let channels = [("email", Channel::Email), ("sms", Channel::Sms)];
        let campaign = Self {
            name: section.or("name", "digest".to_owned()),
            channel: section.choice("channel", &channels).unwrap_or(Channel::Email),
            cron: section.or("cron", "0 9 * * MON".to_owned()),
            timezone: section.required(
                "timezone",
                "it is the IANA zone that the cron is meant in, such as \"Europe/Berlin\"",
            ),
            catch_up: section.or("catch_up", SignedDuration::from_hours(6)),
            late_start: section.or("late_start", SignedDuration::from_hours(12)),
            useful_for: section.or("useful_for", SignedDuration::from_hours(5 * 24)),
        };
        if let Err(error) = check_campaign(&campaign.name) {
            section.refuse("name", error.to_string());
        }
        if tested_campaign(&campaign.name).is_some() {
            section.refuse("name", "names that end in -canary are those of `digestd canary`");
        }
        if !campaign.timezone.is_empty() {
            campaign.check_calendar(section);
        }
        if campaign.catch_up < SignedDuration::from_secs(10) {
            section.refuse("catch_up", "the engine's shortest is \"10s\"");
        }
        campaign
    }

    /// What the zone's future changes of the clocks do to the ticks is asked by `digestd check`
    /// alone: the answer changes with the zone's data, and must not stop an operator's command.
    fn check_calendar(&self, section: &Section<'_>) {
        let checked = Calendar::new(&self.cron, &self.timezone)
            .and_then(|calendar| calendar.check(Timestamp::now()));
        match checked {
            Ok(()) | Err(CalendarError::ClockChange { .. }) => {}
            Err(error @ CalendarError::ZoneSpelling { .. }) => {
                section.refuse("timezone", error.to_string());
            }
            Err(error @ CalendarError::Zone(_)) => {
                let names: Vec<String> =
                    jiff::tz::db().available().map(|name| name.to_string()).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                section.refuse("timezone", format!("{error}{}", nearest(&self.timezone, &names)));
            }
            Err(error) => section.refuse("cron", error.to_string()),
        }
    }
}

/// `[message]`: what a message is rendered from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender; a template. For e-mail a mailbox such as `Shop <digest@shop.example>`, for text
    /// messages a number in E.164, a short code, a name or a messaging service.
    pub from: String,
    /// The subject's template file; for e-mail only.
    pub subject: Option<PathBuf>,
    /// The plain text's template file.
    pub text: PathBuf,
    /// The HTML part's template file; for e-mail only.
    pub html: Option<PathBuf>,
    /// Where a customer unsubscribes; a template.
    pub unsubscribe_url: Option<String>,
    /// What happens to a customer without rows.
    pub when_empty: WhenEmpty,
}

/// What happens to a customer without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEmpty {
    /// Nothing is sent; the operation ends suppressed.
    Skip,
    /// The message is sent without rows.
    Send,
}

impl Message {
    pub(super) fn read(
        section: &mut Section<'_>,
        directory: &Path,
        channel: Channel,
        has_rows: bool,
    ) -> Self {
        let file = |path: String| directory.join(path);
        let subject = section.optional("subject").map(file);
        let html = section.optional("html").map(file);
        if channel == Channel::Sms {
            for (key, given) in [("subject", &subject), ("html", &html)] {
                if given.is_some() {
                    section.refuse(
                        key,
                        "a text message (campaign.channel = \"sms\") has none; leave the line out",
                    );
                }
            }
        }
        let empty = [("skip", WhenEmpty::Skip), ("send", WhenEmpty::Send)];
        let when_empty = section.choice("when_empty", &empty);
        if when_empty == Some(WhenEmpty::Skip) && !has_rows {
            section.refuse(
                "when_empty",
                "without [source] rows every customer is one without rows, so nothing would ever be sent; add rows, or leave this line out",
            );
        }
        let sender = match channel {
            Channel::Email => "it is the sender, such as \"Shop <digest@shop.example>\"",
            Channel::Sms => {
                "it is the sender: a number such as \"+15005550006\", a short code, a name such as \"Shop\", or a messaging service (MG…)"
            }
        };
        let email_subject = || directory.join("templates/subject.txt");
        Self {
            from: section.required("from", sender),
            subject: (channel == Channel::Email).then(|| subject.unwrap_or_else(email_subject)),
            text: file(section.or("text", "templates/digest.txt".to_owned())),
            html,
            unsubscribe_url: section.optional("unsubscribe_url"),
            when_empty: when_empty.unwrap_or(if has_rows {
                WhenEmpty::Skip
            } else {
                WhenEmpty::Send
            }),
        }
    }
}

/// `[http]`: health checks, metrics, API and console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where the worker listens.
    pub listen: SocketAddr,
    /// The header in which a proxy that signs people in names them.
    pub user_header: Option<HeaderName>,
    /// The proxies whose word is taken for it.
    pub trusted_proxies: Vec<IpAddr>,
}

impl Http {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let http = Self {
            listen: section.or("listen", default),
            user_header: section.optional("user_header"),
            trusted_proxies: section.optional("trusted_proxies").unwrap_or_default(),
        };
        if http.user_header.is_some() && http.trusted_proxies.is_empty() {
            section.refuse(
                "user_header",
                "anybody can write a header; name the proxies that are believed by their addresses in trusted_proxies",
            );
        }
        if http.user_header.is_none() && !http.trusted_proxies.is_empty() {
            section.refuse(
                "trusted_proxies",
                "there is nothing to believe them; set user_header, or leave the line out",
            );
        }
        http
    }
}

/// `[webhooks]`: where providers may tell what became of messages; nothing listens by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// Where they listen, apart from everything else; `None` for nowhere.
    pub listen: Option<SocketAddr>,
    /// Where the internet reaches them, without `/webhooks/…`; for providers that are told with each
    /// message where to call.
    pub public_url: Option<String>,
    /// The topics of SNS through which Amazon SES tells; empty for any other provider.
    pub topics: Vec<Topic>,
}

impl Webhooks {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let public_url: Option<String> = section.optional("public_url");
        if let Some(message) = public_url.as_deref().and_then(|url| check_public(url).err()) {
            section.refuse("public_url", message);
        }
        Self {
            listen: section.optional("listen"),
            public_url,
            topics: section.optional("topics").unwrap_or_default(),
        }
    }
}

/// A URL that a provider may call: nobody on the way may read what it tells.
fn check_public(text: &str) -> Result<(), String> {
    let such = "write one such as \"https://hooks.shop.example\"";
    let url = Url::parse(text).map_err(|error| format!("this is not a URL: {error}; {such}"))?;
    let has_more = url.query().is_some() || url.fragment().is_some();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if has_more || has_credentials || !url.has_host() {
        return Err(format!("this is more than scheme, host and path; {such}"));
    }
    if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(&url)) {
        return Err(format!("this does not begin with https://; {such}"));
    }
    Ok(())
}

fn check_database(
    section: &Section<'_>,
    url: &str,
    variable: &str,
    directory: &Path,
    parse: ParseDatabase,
) {
    let checked = refuse_password(url, variable).and_then(|()| parse(url, directory).map(drop));
    if let Err(message) = checked {
        section.refuse("url", message);
    }
}

fn check_web(section: &Section<'_>, key: &str, text: &str) {
    let is_web = Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_web {
        section.refuse(key, format!("{text:?} is not an http:// or https:// URL"));
    }
}

/// Whether it is `host:port`, or an http URL with a host.
fn is_address(text: &str) -> bool {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let explicit_port = text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.trim_end_matches('/').parse::<u16>().is_ok());
    explicit_port
        && Url::parse(&url).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty()
        })
}
