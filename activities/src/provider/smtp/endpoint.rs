//! Where the mail goes: the forms a URL may take, and what each demands of the connection.

use crate::provider::tls::TlsError;
use thiserror::Error;
use url::{Host, Url};

/// How a connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// `smtps://`: TLS from the first byte (RFC 8314, section 3).
    Implicit,
    /// `smtp://`: STARTTLS before anything else. A peer on a loopback address may go without, unless
    /// credentials or a CA of its own are configured.
    StartTls,
    /// `smtp+insecure://`: never any TLS.
    None,
}

/// A server and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Name or address, without the brackets of an IPv6 literal.
    pub(super) host: String,
    /// TCP port.
    pub(super) port: u16,
    /// What the URL's scheme demands.
    pub(super) protection: Protection,
}

/// Why the settings of the SMTP provider cannot be used.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The URL cannot be read as one.
    #[error("provider.url is not a URL ({0}); write for example smtps://mail.example.com:465")]
    Unreadable(url::ParseError),
    /// The URL's scheme is not one of SMTP's.
    #[error(
        "provider.url begins with `{0}://`; write smtps:// (implicit TLS), smtp:// (STARTTLS) or \
         smtp+insecure:// (no TLS)"
    )]
    Scheme(String),
    /// The URL names no host.
    #[error("provider.url names no host; write for example smtps://mail.example.com:465")]
    NoHost,
    /// The URL holds a user name or a password.
    #[error(
        "provider.url holds credentials; take them out and set DIGESTD_PROVIDER_USERNAME and \
         DIGESTD_PROVIDER_PASSWORD instead"
    )]
    CredentialsInUrl,
    /// The URL has a path, a query or a fragment.
    #[error("provider.url goes on after host and port; SMTP knows no path or parameters there")]
    Trailing,
    /// Credentials were given for a connection without TLS.
    #[error(
        "credentials are set, but provider.url is smtp+insecure://, which would send them in the \
         clear; write smtp:// or smtps://, or unset DIGESTD_PROVIDER_USERNAME and \
         DIGESTD_PROVIDER_PASSWORD"
    )]
    InsecureCredentials,
    /// The name for EHLO has a form that no server would take.
    #[error(
        "provider.ehlo_name `{0}` is neither a host name nor an address literal such as [192.0.2.1]"
    )]
    EhloName(String),
    /// The timeout is not a positive time.
    #[error("provider.timeout must be longer than zero")]
    Timeout,
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Endpoint {
    /// Reads the URL's three forms, with the ports of RFC 8314 (465) and RFC 6409 (587) as
    /// defaults.
    ///
    /// # Errors
    /// Every form that is not exactly scheme, host and port.
    pub(super) fn parse(text: &str) -> Result<Self, SettingsError> {
        let url = Url::parse(text).map_err(SettingsError::Unreadable)?;
        let (protection, default_port) = match url.scheme() {
            "smtps" => (Protection::Implicit, 465),
            "smtp" => (Protection::StartTls, 587),
            "smtp+insecure" => (Protection::None, 25),
            other => return Err(SettingsError::Scheme(other.to_owned())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SettingsError::CredentialsInUrl);
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(SettingsError::Trailing);
        }
        let host = match url.host().ok_or(SettingsError::NoHost)? {
            Host::Domain("") => return Err(SettingsError::NoHost),
            Host::Domain(name) => name.to_ascii_lowercase(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self { host, port: url.port().unwrap_or(default_port), protection })
    }

    /// `host:port`, as a person writes it.
    pub(super) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_decides_protection_and_default_port() {
        let read = |text| Endpoint::parse(text).unwrap();
        let endpoint =
            |host: &str, port, protection| Endpoint { host: host.to_owned(), port, protection };
        assert_eq!(
            read("smtps://mail.example.com"),
            endpoint("mail.example.com", 465, Protection::Implicit)
        );
        assert_eq!(
            read("smtp://Mail.Example.com"),
            endpoint("mail.example.com", 587, Protection::StartTls)
        );
        assert_eq!(read("smtp+insecure://relay:2525/"), endpoint("relay", 2525, Protection::None));
        assert_eq!(read("smtp://[::1]:26"), endpoint("::1", 26, Protection::StartTls));
        assert_eq!(read("smtp://[::1]:26").name(), "[::1]:26");
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        let refused = |text| Endpoint::parse(text).unwrap_err();
        assert!(matches!(refused("mail.example.com"), SettingsError::Unreadable(_)));
        assert!(matches!(refused("mail.example.com:25"), SettingsError::Scheme(_)));
        assert!(matches!(refused("http://mail.example.com"), SettingsError::Scheme(_)));
        assert!(matches!(refused("smtp://"), SettingsError::NoHost));
        assert!(matches!(refused("smtp://h:99999"), SettingsError::Unreadable(_)));
        assert!(matches!(refused("smtp://h/inbox"), SettingsError::Trailing));
        assert!(matches!(refused("smtp://h?tls=off"), SettingsError::Trailing));
        let error = refused("smtps://bob:hunter2@mail.example.com");
        assert!(matches!(error, SettingsError::CredentialsInUrl));
        assert!(!error.to_string().contains("hunter2"));
    }
}
