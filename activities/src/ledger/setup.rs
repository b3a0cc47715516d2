//! Connecting, migrating, and the ledger's identity.

use super::database::{Database, Tx, quoted, values};
use super::{Ledger, LedgerError, LedgerRef};
use crate::crash;
use jiff::Timestamp;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use std::fmt::Write as _;

/// The version of the ledger this program writes.
const VERSION: i64 = 5;
/// The oldest program version that may use the ledger this program writes. One that knows no batches
/// would send a member in doubt under its own key, and one that knows no suppressions to everybody.
const COMPATIBLE_FROM: i64 = 5;

const SQLITE: &[(i64, &str, &str)] = &[
    (1, "ledger", include_str!("migrations/0001_ledger.sqlite.sql")),
    (2, "events", include_str!("migrations/0002_events.sqlite.sql")),
    (3, "batches", include_str!("migrations/0003_batches.sqlite.sql")),
    (4, "content", include_str!("migrations/0004_content.sqlite.sql")),
    (5, "suppressions", include_str!("migrations/0005_suppressions.sqlite.sql")),
];
const POSTGRES: &[(i64, &str, &str)] = &[
    (1, "ledger", include_str!("migrations/0001_ledger.postgres.sql")),
    (2, "events", include_str!("migrations/0002_events.postgres.sql")),
    (3, "batches", include_str!("migrations/0003_batches.postgres.sql")),
    (4, "content", include_str!("migrations/0004_content.postgres.sql")),
    (5, "suppressions", include_str!("migrations/0005_suppressions.postgres.sql")),
];

/// The table that records migrations, as the migrator itself would create it.
const SQLITE_RECORD: &str = "
create table digestd_migrations (
    version        bigint primary key,
    description    text not null,
    installed_on   timestamp not null default current_timestamp,
    success        boolean not null,
    checksum       blob not null,
    execution_time bigint not null
);
";
const RECORD: &str = "
create table migrations (
    version        bigint primary key,
    description    text not null,
    installed_on   timestamptz not null default now(),
    success        boolean not null,
    checksum       bytea not null,
    execution_time bigint not null
);
";

/// What [`Ledger::set_up`] found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The version before; 0 for an empty database.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

impl Ledger {
    /// Connects to a ledger that `digestd setup` has prepared. Needs no rights to change the schema.
    ///
    /// `url` is `sqlite://path` or `postgres://user@host/database`; `schema` is used on PostgreSQL
    /// only.
    ///
    /// # Errors
    /// [`LedgerError::NoFile`], [`LedgerError::Unreachable`], [`LedgerError::Unmigrated`],
    /// [`LedgerError::TooNew`].
    pub async fn connect(url: &str, schema: &str) -> Result<Self, LedgerError> {
        if url.starts_with("sqlite:") && !Database::is_ledger_file(url).await? {
            return Err(LedgerError::Unmigrated { found: 0, needed: VERSION });
        }
        let db = Database::connect(url, schema, false).await?;
        Self::open(db).await
    }

    /// Connects, creates or migrates the ledger, and draws its identity the first time.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when the database refuses the schema.
    pub async fn set_up(url: &str, schema: &str) -> Result<(Self, Setup), LedgerError> {
        let db = Database::connect(url, schema, true).await?;
        let (from, needs) = version(&db).await?.unwrap_or_default();
        if needs > VERSION {
            return Err(LedgerError::TooNew { found: from, needs, known: VERSION });
        }
        // A ledger that is up to date needs no rights to change it.
        if from < VERSION {
            migrate(&db).await?;
        }
        let mut tx = db.begin().await?;
        let insert =
            "insert into @meta (name, value) values ($1, $2) on conflict (name) do nothing";
        let update = "insert into @meta (name, value) values ($1, $2) \
                      on conflict (name) do update set value = excluded.value";
        let id = uuid::Uuid::new_v4().to_string();
        tx.execute(insert, values!["id", id]).await?;
        tx.execute(insert, values!["epoch", "1"]).await?;
        tx.execute(insert, values!["compatible_from", COMPATIBLE_FROM.to_string()]).await?;
        if from <= VERSION {
            tx.execute(update, values!["version", VERSION.to_string()]).await?;
        }
        require(&mut tx, COMPATIBLE_FROM).await?;
        tx.commit().await?;
        let ledger = Self::open(db).await?;
        Ok((ledger, Setup { from, to: from.max(VERSION) }))
    }

    async fn open(db: Database) -> Result<Self, LedgerError> {
        let Some((found, needs)) = version(&db).await? else {
            return Err(LedgerError::Unmigrated { found: 0, needed: VERSION });
        };
        if found < VERSION {
            return Err(LedgerError::Unmigrated { found, needed: VERSION });
        }
        if needs > VERSION {
            return Err(LedgerError::TooNew { found, needs, known: VERSION });
        }
        let mut tx = db.begin_reading().await?;
        let id = meta(&mut tx, "id").await?;
        let epoch = meta(&mut tx, "epoch").await?;
        let (Some(id), Some(epoch)) = (id, epoch.and_then(|epoch| epoch.parse().ok())) else {
            return Err(LedgerError::corrupt("no identity; run `digestd setup`"));
        };
        drop(tx);
        Ok(Self { db, identity: LedgerRef { id, epoch } })
    }

    /// Raises the epoch, so that no workflow that was started before does anything more here. What
    /// is connected already goes on under the old one, so every worker must be stopped.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; the epoch may be raised then.
    pub async fn raise_epoch(&mut self) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        let epoch = meta(&mut tx, "epoch").await?.and_then(|epoch| epoch.parse::<i64>().ok());
        let epoch =
            epoch.ok_or_else(|| LedgerError::corrupt("no identity; run `digestd setup`"))?;
        tx.execute(
            "update @meta set value = $2 where name = $1",
            values!["epoch", (epoch + 1).to_string()],
        )
        .await?;
        tx.commit().await?;
        self.identity.epoch = epoch + 1;
        Ok(())
    }

    /// Notes that `campaign` is set up from `at` on, unless an earlier setup is noted: ticks before
    /// are nobody's.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn note_setup(&self, campaign: &str, at: Timestamp) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        tx.execute(
            "insert into @meta (name, value) values ($1, $2) on conflict (name) do nothing",
            values![format!("since:{campaign}"), at.to_string()],
        )
        .await?;
        tx.commit().await
    }

    /// When `campaign` was first set up.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn set_up_since(&self, campaign: &str) -> Result<Option<Timestamp>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let since = meta(&mut tx, &format!("since:{campaign}")).await?;
        since
            .map(|text| text.parse().map_err(|_| LedgerError::corrupt("the time of the setup")))
            .transpose()
    }

    /// When the newest decision was recorded, by the ledger's clock; `None` before the first.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn newest_decision(&self) -> Result<Option<Timestamp>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = "select at from @decisions order by id desc limit 1";
        tx.row(sql, &[]).await?.map(|row| row.time(0)).transpose()
    }

    /// The transition counter: how many decisions this ledger has recorded. It never goes back but
    /// by a restore.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn counter(&self) -> Result<i64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx.row("select coalesce(max(id), 0) from @decisions", &[]).await?;
        row.map_or(Ok(0), |row| row.int(0))
    }

    /// What a prudent operator would want to change about the database, in sentences; for `check`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn warnings(&self) -> Result<Vec<String>, LedgerError> {
        let mut warnings = Vec::new();
        if let Database::Postgres { .. } = &self.db {
            let mut tx = self.db.begin_reading().await?;
            let row = tx.row("select current_setting('fsync')", &[]).await?;
            if row.map(|row| row.text(0)).transpose()?.as_deref() == Some("off") {
                warnings.push(
                    "the ledger's PostgreSQL runs with fsync = off: a power cut could forget that a \
                     message was sent; set fsync = on"
                        .to_owned(),
                );
            }
        }
        Ok(warnings)
    }
}

/// The statements that create the ledger whole, for a DBA to run instead of `digestd setup`: they
/// also record what the migration would have, so that later versions can go on from there.
#[must_use]
pub fn ddl(url: &str, schema: &str) -> String {
    let is_sqlite = url.starts_with("sqlite:");
    let mut sql = String::from("begin;\n\n");
    if !is_sqlite {
        let schema = quoted(schema);
        let _ = writeln!(sql, "create schema if not exists {schema};");
        let _ = writeln!(sql, "set local search_path to {schema};\n");
    }
    let (list, record) = if is_sqlite { (SQLITE, SQLITE_RECORD) } else { (POSTGRES, RECORD) };
    for migration in migrations(list) {
        sql.push_str(migration.sql.as_str());
    }
    sql.push_str(record);
    let (table, hex, end) =
        if is_sqlite { ("digestd_migrations", "x'", "'") } else { ("migrations", "'\\x", "'") };
    for migration in migrations(list) {
        let checksum = data_encoding::HEXLOWER.encode(&migration.checksum);
        let _ = writeln!(
            sql,
            "insert into {table} (version, description, success, checksum, execution_time)\n    \
             values ({}, '{}', true, {hex}{checksum}{end}, 0);",
            migration.version, migration.description,
        );
    }
    let (meta, id) = if is_sqlite {
        ("digestd_meta", "lower(hex(randomblob(16)))")
    } else {
        ("meta", "gen_random_uuid()::text")
    };
    let _ = writeln!(
        sql,
        "insert into {meta} (name, value) values ('id', {id}), ('epoch', '1'),\n    \
         ('version', '{VERSION}'), ('compatible_from', '{COMPATIBLE_FROM}');\n\ncommit;"
    );
    sql
}

/// The rights that the worker's role needs on a PostgreSQL ledger once it exists; empty for SQLite.
#[must_use]
pub fn grants(url: &str, schema: &str, role: &str) -> String {
    if url.starts_with("sqlite:") {
        return String::new();
    }
    let (schema, role) = (quoted(schema), quoted(role));
    format!(
        "grant usage on schema {schema} to {role};\n\
         grant select, insert, update, delete on all tables in schema {schema} to {role};\n\
         grant usage on all sequences in schema {schema} to {role};\n"
    )
}

type Statements = [(i64, &'static str, &'static str)];

fn migrations(list: &'static Statements) -> impl Iterator<Item = Migration> {
    list.iter().map(|(version, name, sql)| {
        let sql: SqlStr = AssertSqlSafe(*sql).into_sql_str();
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql, false)
    })
}

async fn migrate(db: &Database) -> Result<(), LedgerError> {
    let (list, table) = match db {
        Database::Sqlite { .. } => (SQLITE, "digestd_migrations"),
        Database::Postgres { .. } => (POSTGRES, "migrations"),
    };
    let mut migrator = Migrator::with_migrations(migrations(list).collect());
    migrator.dangerous_set_table_name(table);
    // A newer ledger that is marked compatible is accepted.
    migrator.set_ignore_missing(true);
    let result = match db {
        Database::Sqlite { writer, .. } => {
            crash::point("migrating");
            migrator.run(writer).await
        }
        Database::Postgres { pool, schema, .. } => {
            // Asked first: creating needs a right on the database even where the schema exists.
            let mut tx = db.begin().await?;
            let find = "select 1::bigint from pg_namespace where nspname = $1";
            if tx.row(find, values![schema.as_str()]).await?.is_none() {
                let create = format!("create schema if not exists {}", quoted(schema));
                tx.execute(&create, &[]).await?;
            }
            tx.commit().await?;
            crash::point("migrating");
            migrator.run(pool).await
        }
    };
    result.map_err(|error| LedgerError::corrupt(format!("the migration failed: {error}")))?;
    crash::point("migrating");
    Ok(())
}

/// The ledger's version and the oldest program version that may use it; `None` without a ledger.
async fn version(db: &Database) -> Result<Option<(i64, i64)>, LedgerError> {
    let mut tx = db.begin_reading().await?;
    let exists = match db {
        Database::Sqlite { .. } => {
            "select name from sqlite_schema where type = 'table' and name = 'digestd_meta'"
        }
        Database::Postgres { .. } => {
            "select table_name::text from information_schema.tables \
             where table_schema = current_schema() and table_name = 'meta'"
        }
    };
    if tx.row(exists, &[]).await?.is_none() {
        return Ok(None);
    }
    let version = meta(&mut tx, "version").await?.and_then(|text| text.parse().ok());
    let needs = meta(&mut tx, "compatible_from").await?.and_then(|text| text.parse().ok());
    Ok(version.zip(needs))
}

/// Lets no program older than `version` use the ledger any more. Where that is so already, nothing is
/// locked.
async fn require(tx: &mut Tx, version: i64) -> Result<(), LedgerError> {
    // Other values are no numbers, and a database reads a condition in any order.
    let sql = "update @meta set value = $1 where name = 'compatible_from' \
               and case when name = 'compatible_from' then cast(value as bigint) end < $2";
    tx.execute(sql, values![version.to_string(), version]).await?;
    Ok(())
}

async fn meta(tx: &mut Tx, name: &str) -> Result<Option<String>, LedgerError> {
    let row = tx.row("select value from @meta where name = $1", values![name]).await?;
    row.map(|row| row.text(0)).transpose()
}
