//! What two keys must be to each other, and the configuration to its secrets and to the calendar.

use super::database::{Database, ParseDatabase};
use super::duration::show;
use super::error::{ConfigError, Problem};
use super::reader::{Reader, problem};
use super::secrets::{self, SecretError, Secrets};
use super::tables::Channel;
use super::{Config, ProviderKind, folder};
use digest_activities::calendar::{Calendar, CalendarError};
use digest_activities::message::Redacted;
use jiff::Timestamp;

/// Refuses values that are fine alone and wrong together.
pub(super) fn together(config: &Config, reader: &Reader<'_>) {
    let provider = &config.provider;
    let unknown = &config.unknown;
    let shorter = |(less, less_value), (more, more_value), why: &str| {
        if less_value >= more_value {
            let (less_value, more_value) = (show(less_value), show(more_value));
            reader.refuse(
                less,
                format!("{less_value} must be shorter than {more} ({more_value}): {why}"),
            );
        }
    };
    let timeout = ("provider.timeout", provider.timeout);
    let lease = ("provider.lease", provider.lease);
    let escalate = ("unknown.escalate_after", unknown.escalate_after);
    let keep = ("unknown.keep_rows_for", unknown.keep_rows_for);
    shorter(timeout, lease, "a late answer is listened for until the lease ends");
    shorter(lease, escalate, "an unknown is a person's matter only after the lease");
    shorter(escalate, keep, "an unknown must be seen before it expires");
    let settled = ("provider.settle", provider.lease.saturating_add(provider.settle));
    shorter(
        settled,
        keep,
        "that is lease and settle together, and an unknown must not expire before",
    );
    shorter(
        timeout,
        ("worker.shutdown_grace", config.worker.shutdown_grace),
        "a worker that stops waits for the answers it asked for",
    );
    shorter(
        ("campaign.late_start", config.campaign.late_start),
        ("campaign.useful_for", config.campaign.useful_for),
        "a late run must still be of use when it is resumed",
    );
    let records = ("retention.records", config.retention.records);
    shorter(keep, records, "an unknown's record must outlive it");
    if config.retention.content > config.retention.records {
        reader.refuse("retention.content", "this is longer than retention.records");
    }
    webhooks(config, reader);
    let needs_topics = config.webhooks.listen.is_some() && provider.kind == ProviderKind::Ses;
    if needs_topics && config.webhooks.topics.is_empty() {
        reader.refuse(
            "webhooks.listen",
            "ses tells through topics of SNS, and anybody can have one; name yours by its ARN in webhooks.topics",
        );
    }
    if provider.kind != ProviderKind::Ses && !config.webhooks.topics.is_empty() {
        reader.refuse(
            "webhooks.topics",
            format!(
                "topics are SNS's, through which only ses tells; leave the line out with {}",
                provider.kind.name()
            ),
        );
    }
    let by_text = config.campaign.channel == Channel::Sms;
    let kind = provider.kind;
    if kind != ProviderKind::Sandbox && (kind == ProviderKind::Twilio) != by_text {
        let channel = if by_text { "text messages" } else { "mail" };
        reader.refuse(
            "provider.kind",
            format!("{} does not deliver {channel}; change it or campaign.channel", kind.name()),
        );
    }
}

/// Twilio is told with each message where to call; the others are told once, where they are set up.
fn webhooks(config: &Config, reader: &Reader<'_>) {
    let webhooks = &config.webhooks;
    let is_told = config.provider.kind == ProviderKind::Twilio;
    match (&webhooks.public_url, webhooks.listen) {
        (Some(_), _) if !is_told => {
            reader.refuse("webhooks.public_url", "only kind = \"twilio\" takes this; leave the line out");
        }
        (Some(_), None) => reader.refuse(
            "webhooks.listen",
            "this is missing; it is where the worker listens for what reaches public_url, such as \"0.0.0.0:8090\"",
        ),
        (None, Some(_)) if is_told => reader.refuse(
            "webhooks.public_url",
            "this is missing; Twilio is told with each message where to call, such as \"https://hooks.shop.example\"",
        ),
        (None | Some(_), _) => {}
    }
}

impl Config {
    /// Checks what a loaded configuration depends on beside its file, for `digestd check`, `setup`
    /// and `worker`: that the secrets it needs are set, and that no tick of the next five years
    /// falls where the clocks change.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that was found.
    pub fn check(&self, secrets: &Secrets, now: Timestamp) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let mut refuse =
            |key: &str, message: String| problems.push(problem(&self.lines, key, message));
        if let Err(error) = self.calendar().and_then(|calendar| calendar.check(now)) {
            refuse("campaign.cron", error.to_string());
        }
        let has_credentials =
            secrets.provider_username.is_some() || secrets.provider_password.is_some();
        let insecure =
            self.provider.url.as_ref().is_some_and(|url| url.starts_with("smtp+insecure:"));
        if insecure && has_credentials {
            refuse(
                "provider.url",
                format!(
                    "smtp+insecure:// would send the credentials in clear text; use smtps:// or smtp://, or unset {} and {}",
                    secrets::PROVIDER_USERNAME,
                    secrets::PROVIDER_PASSWORD
                ),
            );
        }
        let token = self
            .message
            .unsubscribe_url
            .as_ref()
            .is_some_and(|url| url.contains("unsubscribe_token"));
        if token && secrets.unsubscribe_secret.is_none() {
            refuse(
                "message.unsubscribe_url",
                format!(
                    "this uses unsubscribe_token, which is derived from {}; set that variable to a long random text and keep it",
                    secrets::UNSUBSCRIBE_SECRET
                ),
            );
        }
        if problems.is_empty() { Ok(()) } else { Err(self.invalid(problems)) }
    }

    /// When the ticks are.
    ///
    /// # Errors
    /// Those of [`Calendar::new`]; for a configuration that was loaded, none is left.
    pub fn calendar(&self) -> Result<Calendar, CalendarError> {
        Calendar::new(&self.campaign.cron, &self.campaign.timezone)
    }

    /// The ledger's database: that of the variable, else that of the file.
    ///
    /// # Errors
    /// [`ConfigError::Secret`] when the variable holds no database URL.
    pub fn ledger_database(&self, secrets: &Secrets) -> Result<Database, ConfigError> {
        match &secrets.ledger_url {
            Some(url) => self.of_variable(secrets::LEDGER_URL, url, Database::of_ledger),
            None => self.of_file("ledger.url", &self.ledger.url, Database::of_ledger),
        }
    }

    /// The source's database: that of the variable, else that of the file, else the ledger's.
    ///
    /// # Errors
    /// [`ConfigError::Secret`] when a variable holds no database URL.
    pub fn source_database(&self, secrets: &Secrets) -> Result<Database, ConfigError> {
        match (&secrets.source_url, &self.source.url) {
            (Some(url), _) => self.of_variable(secrets::SOURCE_URL, url, Database::of_source),
            (None, Some(url)) => self.of_file("source.url", url, Database::of_source),
            (None, None) => self.ledger_database(secrets),
        }
    }

    fn of_variable(
        &self,
        variable: &'static str,
        url: &Redacted<String>,
        parse: ParseDatabase,
    ) -> Result<Database, ConfigError> {
        parse(url.reveal(), folder(&self.file))
            .map_err(|message| SecretError::Database { variable, message }.into())
    }

    fn of_file(&self, key: &str, url: &str, parse: ParseDatabase) -> Result<Database, ConfigError> {
        parse(url, folder(&self.file))
            .map_err(|message| self.invalid(vec![problem(&self.lines, key, message)]))
    }

    fn invalid(&self, problems: Vec<Problem>) -> ConfigError {
        ConfigError::Invalid { path: self.file.clone(), problems }
    }
}
