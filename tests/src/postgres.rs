//! A PostgreSQL server for tests: started once per test process, thrown away with it.

use crate::absent::absent;
use crate::scripted::{Scripted, on_a_free_port};
use anyhow::{Context, bail};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// An existing server to create databases in, as a superuser: `postgres://user@host:port`.
const SERVER_VARIABLE: &str = "DIGESTD_TEST_POSTGRES_URL";
/// The user that the server runs as when the tests run as root, which it refuses to be.
const SERVER_USER: &str = "postgres";
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a restart is tried.
const STARTS_MAX: u32 = 5;

/// A line `kill` ends all its processes by SIGKILL, its own children before they could tell anybody; a
/// line `immediate` ends it as `pg_ctl -m immediate` does; a line `start` starts it again on the same
/// files.
const SCRIPT: &str = r#"
set -u
directory=$(mktemp -d) || exit 1
server=
finish() {
    [ -n "$server" ] && kill -QUIT "$server" 2>/dev/null && wait "$server"
    rm -rf "$directory"
}
trap finish EXIT
trap '' INT
"$BINARIES/initdb" -D "$directory/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync \
    >"$directory/initdb.log" 2>&1 || { cat "$directory/initdb.log" >&2; exit 1; }
end() {
    children=
    kill -STOP "$server" 2>/dev/null && read -r children <"/proc/$server/task/$server/children"
    kill -KILL $children "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
start() {
    "$BINARIES/postgres" -D "$directory/data" -p "$PORT" -k "$directory" \
        -c listen_addresses=127.0.0.1 -c max_connections=200 -c log_min_messages=fatal $SETTINGS \
        </dev/null >/dev/null 2>&1 &
    server=$!
}
start
while read -r command; do
    if [ "$command" = immediate ]; then
        kill -QUIT "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    else
        end
    fi
    [ "$command" = start ] && start
done
"#;

/// For tests, whose data is thrown away with the server.
const FORGETFUL: &str = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off";
/// For measurements: as it runs in production, and it counts what it is asked.
const MEASURED: &str = "-c shared_preload_libraries=pg_stat_statements";

/// A running server. Dropped, it is stopped and its data removed.
pub struct Postgres {
    url: String,
    server: Option<Scripted>,
}

impl Postgres {
    /// The one server of this test process, started when it is first asked for. Without PostgreSQL
    /// on the machine it says on standard error that `what` was not tested, and how to get it.
    ///
    /// # Errors
    /// When the server does not start.
    ///
    /// # Panics
    /// As [`absent`].
    pub async fn shared(what: &str) -> anyhow::Result<Option<&'static Self>> {
        // A static is never dropped: the server ends with the process, by its standard input.
        static SHARED: OnceCell<Option<Postgres>> = OnceCell::const_new();
        let shared = SHARED.get_or_try_init(Self::start).await?;
        if shared.is_none() {
            let how = format!("run `apt-get install postgresql`, or set {SERVER_VARIABLE}");
            absent("PostgreSQL", what, &how);
        }
        Ok(shared.as_ref())
    }

    /// Starts a server of its own on 127.0.0.1, or takes the one that `DIGESTD_TEST_POSTGRES_URL`
    /// names; `None` where there is none on the machine.
    ///
    /// # Errors
    /// When it is there and does not start.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        if let Ok(url) = std::env::var(SERVER_VARIABLE) {
            let url = url.trim_end_matches('/').to_owned();
            return Ok(Some(Self { url, server: None }));
        }
        Self::start_own().await
    }

    /// Starts a server of its own, which may be killed and restarted; `None` where PostgreSQL is not
    /// on the machine.
    ///
    /// # Errors
    /// When it is there and does not start.
    pub async fn start_own() -> anyhow::Result<Option<Self>> {
        Self::start_with(FORGETFUL).await
    }

    /// Starts a server of its own for measurements, which forces every commit to the disk and has
    /// the statistics of `pg_stat_statements`; `None` where PostgreSQL is not on the machine.
    ///
    /// # Errors
    /// When it is there and does not start.
    pub async fn start_measured() -> anyhow::Result<Option<Self>> {
        Self::start_with(MEASURED).await
    }

    async fn start_with(settings: &str) -> anyhow::Result<Option<Self>> {
        let Some(binaries) = binaries() else { return Ok(None) };
        on_a_free_port(async |port| Self::start_on(&binaries, port, settings).await).await.map(Some)
    }

    async fn start_on(binaries: &Path, port: u16, settings: &str) -> anyhow::Result<Self> {
        let binaries = binaries.to_str().context("the path to PostgreSQL is not UTF-8")?;
        let port_text = port.to_string();
        let variables = [("BINARIES", binaries), ("PORT", &port_text), ("SETTINGS", settings)];
        let server = Scripted::start("PostgreSQL", SCRIPT, &variables, Some(SERVER_USER))?;
        let url = format!("postgres://postgres@127.0.0.1:{port}");
        let mut postgres = Self { url, server: Some(server) };
        postgres.answers(START_TIMEOUT).await?;
        // Somebody else's server could have answered on the port.
        postgres.still_runs()?;
        Ok(postgres)
    }

    /// Waits until it answers.
    async fn answers(&mut self, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while let Err(error) = PgConnection::connect(&self.database_url("postgres")).await {
            self.still_runs()?;
            if Instant::now() > deadline {
                bail!("the PostgreSQL server does not answer: {error}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Kills every process of a server of its own by SIGKILL, and waits until nobody answers.
    ///
    /// # Errors
    /// When the server is not ours, or goes on.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.tell("kill")?;
        self.is_gone().await
    }

    /// Stops a server of its own as `pg_ctl -m immediate` does, without a checkpoint, and waits until
    /// nobody answers.
    ///
    /// # Errors
    /// When the server is not ours, or goes on.
    pub async fn stop_immediately(&mut self) -> anyhow::Result<()> {
        self.tell("immediate")?;
        self.is_gone().await
    }

    async fn is_gone(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while PgConnection::connect(&self.database_url("postgres")).await.is_ok() {
            if Instant::now() > deadline {
                bail!("the PostgreSQL server goes on after it was ended");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Starts it again after [`kill`](Self::kill) or
    /// [`stop_immediately`](Self::stop_immediately), on the same files; it recovers by its log.
    ///
    /// # Errors
    /// When the server is not ours, or does not answer again.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        let mut starts = 0;
        loop {
            starts += 1;
            self.tell("start")?;
            // What is left of the killed processes may keep a start from succeeding for a moment.
            match self.answers(START_TIMEOUT / 10).await {
                Err(_) if starts < STARTS_MAX => {}
                started => return started,
            }
        }
    }

    fn tell(&mut self, command: &str) -> anyhow::Result<()> {
        let server = self.server.as_mut();
        server.context("the PostgreSQL server is somebody else's")?.tell(command)
    }

    fn still_runs(&mut self) -> anyhow::Result<()> {
        self.server.as_mut().map_or(Ok(()), Scripted::still_runs)
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
        let mut connection = PgConnection::connect(&self.database_url("postgres")).await?;
        let drop = format!("drop database if exists \"{name}\" with (force)");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
        let create = format!("create database \"{name}\"");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        Ok(self.database_url(&name))
    }

    fn database_url(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }
}

/// Where the server's programs are: on the path, or where Debian keeps the newest.
fn binaries() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = debian
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort_unstable();
    on_path
        .chain(versions.into_iter().rev().map(|(_, path)| path.join("bin")))
        .find(|directory| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file()))
}
