//! Database URLs: SQLite or PostgreSQL, for customers also MySQL or MariaDB, without a password where a file holds them, and with a
//! SQLite path made absolute, so that the working directory never decides which ledger is written.

use digest_activities::message::Redacted;
use std::path::Path;
use url::Url;

/// A database that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Which system it is.
    pub kind: DatabaseKind,
    /// The URL to open it with; private, since it may carry a password.
    pub url: Redacted<String>,
}

/// A database system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// A file on this machine.
    Sqlite,
    /// A server, for more than one machine.
    Postgres,
    /// A server of MySQL or MariaDB, with customers.
    Mysql,
}

/// How a URL is read: for the source, or for the ledger.
pub(super) type ParseDatabase = fn(&str, &Path) -> Result<Database, String>;

impl Database {
    /// Reads `text`; a relative SQLite path is taken from `directory`.
    ///
    /// # Errors
    /// What is wrong with it, without quoting it, since it may hold a password.
    pub(super) fn of_source(text: &str, directory: &Path) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", rest)) => Ok(Self {
                kind: DatabaseKind::Sqlite,
                url: Redacted::new(sqlite(rest, directory)?),
            }),
            Some((scheme @ ("postgres" | "postgresql" | "mysql" | "mariadb"), _)) => {
                let is_postgres = scheme.starts_with("postgres");
                let url = Url::parse(text).map_err(|error| format!("this is not a URL: {error}"))?;
                if url.path().trim_matches('/').is_empty() {
                    let scheme = if is_postgres { "postgres" } else { scheme };
                    return Err(format!(
                        "this names no database; write {scheme}://user@host/database"
                    ));
                }
                let kind =
                    if is_postgres { DatabaseKind::Postgres } else { DatabaseKind::Mysql };
                Ok(Self { kind, url: Redacted::new(text.to_owned()) })
            }
            _ => Err(
                "this is not a database URL; write sqlite://file.db or postgres://user@host/database"
                    .to_owned(),
            ),
        }
    }

    /// The same for the ledger, which is in SQLite or PostgreSQL.
    ///
    /// # Errors
    /// As [`Database::of_source`].
    pub(super) fn of_ledger(text: &str, directory: &Path) -> Result<Self, String> {
        match Self::of_source(text, directory)? {
            Self { kind: DatabaseKind::Mysql, .. } => Err(
                "MySQL and MariaDB may hold the customers ([source] url) but not the ledger; use SQLite or PostgreSQL"
                    .to_owned(),
            ),
            database => Ok(database),
        }
    }
}

/// Refuses a URL that carries a password, which belongs into `variable`.
///
/// # Errors
/// The refusal, without the password.
pub(super) fn refuse_password(text: &str, variable: &str) -> Result<(), String> {
    let Ok(url) = Url::parse(text) else { return Ok(()) };
    let in_query = url.query_pairs().any(|(key, _)| key.eq_ignore_ascii_case("password"));
    if url.password().is_some() || in_query {
        return Err(format!(
            "a password does not belong into this file; set the variable {variable} (or {variable}_FILE) and leave it out here"
        ));
    }
    Ok(())
}

/// The URL of the SQLite file that `rest` (all after `sqlite:`) names.
fn sqlite(rest: &str, directory: &Path) -> Result<String, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let (file, options) = path.split_at(path.find('?').unwrap_or(path.len()));
    if file.contains(":memory:") || options.contains("mode=memory") {
        return Err(
            "a database in memory forgets what was sent; write a file such as sqlite://digestd.db"
                .to_owned(),
        );
    }
    if file.is_empty() {
        return Err("this names no file; write one such as sqlite://digestd.db".to_owned());
    }
    if file.starts_with('/') {
        return Ok(format!("sqlite://{file}{options}"));
    }
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let directory = Url::from_directory_path(absolute)
        .map_err(|()| "the configuration file's folder has no absolute path".to_owned())?;
    Ok(format!("sqlite://{}{file}{options}", directory.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, String> {
        Database::of_source(text, Path::new("/etc/my shop"))
            .map(|database| database.url.reveal().clone())
    }

    #[test]
    fn a_sqlite_path_is_taken_from_the_configuration_files_folder() {
        let shop = "sqlite:///etc/my%20shop/digestd.db";
        assert_eq!(url("sqlite://digestd.db").as_deref(), Ok(shop));
        assert_eq!(url("sqlite:digestd.db").as_deref(), Ok(shop));
        assert_eq!(url("sqlite://digestd.db?mode=rwc"), Ok(format!("{shop}?mode=rwc")));
        assert_eq!(url("sqlite:///var/x.db").as_deref(), Ok("sqlite:///var/x.db"));
    }

    #[test]
    fn what_cannot_be_opened_is_refused_without_quoting_it() {
        for text in [
            "sqlite::memory:",
            "sqlite://x?mode=memory",
            "sqlite://",
            "mysql://root:hunter2@db",
            "mariadb://root:hunter2@db:x/shop",
            "hunter2",
            "postgres://u:hunter2@",
            "postgres://u:hunter2@host",
            "postgres://u:hunter2@h:x/d",
        ] {
            let error = url(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
        assert!(url("postgres://u:hunter2@host/shop").is_ok());
    }

    #[test]
    fn mysql_holds_customers_and_no_ledger() {
        for text in ["mysql://u:hunter2@host/shop", "mariadb://u@host:3307/shop?ssl-mode=required"]
        {
            let directory = Path::new("/etc/shop");
            assert_eq!(url(text).as_deref(), Ok(text));
            let error = Database::of_ledger(text, directory).unwrap_err();
            assert!(error.contains("[source] url") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_password_is_found_wherever_a_url_may_carry_one() {
        for text in [
            "postgres://u:hunter2@h/d",
            "postgres://h/d?user=u&password=hunter2",
            "mysql://u:hunter2@h/d",
        ] {
            let error = refuse_password(text, "DIGESTD_LEDGER_URL").unwrap_err();
            assert!(error.contains("DIGESTD_LEDGER_URL") && !error.contains("hunter2"), "{error}");
        }
        assert_eq!(refuse_password("postgres://u@h/d", "DIGESTD_LEDGER_URL"), Ok(()));
    }
}
