//! A MariaDB server for tests: started once per test process, thrown away with it.

use crate::absent::absent;
use crate::authority::Authority;
use crate::scripted::{Scripted, on_a_free_port};
use anyhow::{Context, bail};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// An existing server to create databases and users in: `mysql://user:password@host:port`.
const SERVER_VARIABLE: &str = "DIGESTD_TEST_MARIADB_URL";
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Where the package keeps the statements that make the system tables, under one name or the other.
const SYSTEM_TABLES: [&str; 2] = ["/usr/share/mysql/mysql", "/usr/share/mariadb/mariadb"];

/// Makes the system tables itself, since `mariadb-install-db` needs a package of clients.
const SCRIPT: &str = r#"
set -u
directory=$(mktemp -d) || exit 1
server=
finish() {
    [ -n "$server" ] && kill -KILL "$server" 2>/dev/null && wait "$server"
    rm -rf "$directory"
}
trap finish EXIT
trap '' INT
mkdir "$directory/data"
for part in authority certificate key; do
    eval "printf %s \"\$$part\"" >"$directory/$part.pem"
done
# Called in the background or in a pipe, that is in a shell of its own, which becomes the server.
run() {
    exec "$MARIADBD" --no-defaults --user="$(id -un)" --datadir="$directory/data" --skip-log-bin \
        --innodb-log-file-size=8M --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 \
        --character-set-server=utf8mb4 "$@"
}
{
    printf 'create database mysql;\nuse mysql;\nset @auth_root_socket = null;\n'
    cat "${TABLES}_system_tables.sql" "${TABLES}_performance_tables.sql" "${TABLES}_system_tables_data.sql"
    printf "flush privileges;\ncreate user 'tester'@'127.0.0.1';\n"
    printf "grant all on *.* to 'tester'@'127.0.0.1' with grant option;\n"
} | run --bootstrap >"$directory/bootstrap.log" 2>&1 || { cat "$directory/bootstrap.log" >&2; exit 1; }
run --port="$PORT" --bind-address=127.0.0.1 --socket="$directory/socket" --max-connections=200 \
    --skip-name-resolve --ssl-ca="$directory/authority.pem" --ssl-cert="$directory/certificate.pem" \
    --ssl-key="$directory/key.pem" </dev/null >"$directory/server.log" 2>&1 &
server=$!
cat >/dev/null
"#;

/// A running server. Dropped, it is stopped and its data removed.
#[derive(Debug)]
pub struct Mariadb {
    url: String,
    authority: String,
    server: Option<Scripted>,
}

impl Mariadb {
    /// The one server of this test process, started when it is first asked for. Without MariaDB on
    /// the machine it says on standard error that `what` was not tested, and how to get it.
    ///
    /// # Errors
    /// When the server does not start.
    ///
    /// # Panics
    /// As [`absent`].
    pub async fn shared(what: &str) -> anyhow::Result<Option<&'static Self>> {
        // A static is never dropped: the server ends with the process, by its standard input.
        static SHARED: OnceCell<Option<Mariadb>> = OnceCell::const_new();
        let shared = SHARED.get_or_try_init(Self::start).await?;
        if shared.is_none() {
            let how =
                format!("run `apt-get install mariadb-server-core`, or set {SERVER_VARIABLE}");
            absent("MariaDB", what, &how);
        }
        Ok(shared.as_ref())
    }

    /// Starts a server of its own on 127.0.0.1, or takes the one that `DIGESTD_TEST_MARIADB_URL`
    /// names; `None` where there is none on the machine.
    ///
    /// # Errors
    /// When it is there and does not start.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        if let Ok(url) = std::env::var(SERVER_VARIABLE) {
            let url = url.trim_end_matches('/').to_owned();
            return Ok(Some(Self { url, authority: String::new(), server: None }));
        }
        let tables = SYSTEM_TABLES
            .into_iter()
            .find(|tables| Path::new(&format!("{tables}_system_tables.sql")).is_file());
        let (Some(program), Some(tables)) = (program(), tables) else { return Ok(None) };
        on_a_free_port(async |port| Self::start_on(&program, tables, port).await).await.map(Some)
    }

    async fn start_on(program: &Path, tables: &str, port: u16) -> anyhow::Result<Self> {
        let pem = Authority::new()?.pem().clone();
        let variables = [
            ("MARIADBD", program.to_str().context("the path to MariaDB is not UTF-8")?),
            ("TABLES", tables),
            ("PORT", &port.to_string()),
            ("authority", &pem.authority),
            ("certificate", &pem.certificate),
            ("key", &pem.key),
        ];
        let server = Some(Scripted::start("MariaDB", SCRIPT, &variables, None)?);
        let url = format!("mysql://tester@127.0.0.1:{port}");
        let mut mariadb = Self { url, authority: pem.authority, server };
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = MySqlConnection::connect(&mariadb.url).await {
            mariadb.still_runs()?;
            if Instant::now() > deadline {
                bail!("the MariaDB server does not answer: {error}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Somebody else's server could have answered on the port.
        mariadb.still_runs()?;
        Ok(mariadb)
    }

    fn still_runs(&mut self) -> anyhow::Result<()> {
        self.server.as_mut().map_or(Ok(()), Scripted::still_runs)
    }

    /// The certificate of the authority that vouches for the server as `localhost`, as PEM; empty
    /// for a server that was there before.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Creates an empty database, whose name contains `name` (letters, digits and `_`) and is new in
    /// this server; its URL.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn database(&self, name: &str) -> anyhow::Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{name}_{}_{count}", std::process::id());
        let mut connection = MySqlConnection::connect(&self.url).await?;
        let create = format!("create or replace database `{name}`");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        Ok(format!("{}/{name}", self.url))
    }
}

/// The server's program: on the path, or where Debian keeps it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join("mariadbd"))
        .find(|program| program.is_file())
}
