//! What every pool of connections to SQLite needs.

use sqlx::Connection as _;
use sqlx::sqlite::SqlitePoolOptions;

/// The options of a pool that lends no connection which the driver believes to be in a transaction.
///
/// A full disk, an I/O error or an interrupt makes SQLite roll back by itself
/// (sqlite.org/lang_transaction.html, "Response To Errors Within A Transaction"). The driver's own
/// `ROLLBACK` then fails, it goes on counting that transaction as open, and nothing could ever begin on
/// this connection again. Such a one is closed, and another opened.
pub(crate) fn pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new().before_acquire(|connection, _idle| {
        Box::pin(async move { Ok(!connection.is_in_transaction()) })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

    use super::pool;
    use sqlx::SqlitePool;

    /// Whether a transaction can begin after SQLite has ended one by itself, which a trigger's
    /// `raise(rollback)` does as a full disk does.
    async fn begins_again(pool: SqlitePool) -> bool {
        for sql in [
            "create table numbers (number integer)",
            "create trigger ends before insert on numbers when new.number = 1 \
             begin select raise(rollback, 'it ends here'); end",
        ] {
            sqlx::query(sql).execute(&pool).await.unwrap();
        }
        let mut transaction = pool.begin_with("begin immediate").await.unwrap();
        let insert = "insert into numbers values (1)";
        sqlx::query(insert).execute(&mut *transaction).await.unwrap_err();
        drop(transaction);
        let begun = pool.begin_with("begin immediate").await;
        begun.is_ok()
    }

    #[tokio::test]
    async fn a_transaction_that_sqlite_has_ended_by_itself_spoils_no_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let url = |name: &str| format!("sqlite://{}?mode=rwc", folder.path().join(name).display());
        let ours = pool().max_connections(1).connect(&url("ours.db")).await.unwrap();
        assert!(begins_again(ours).await);
        // What it is there for: without it, the next one fails.
        let theirs = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
        assert!(!begins_again(theirs.connect(&url("theirs.db")).await.unwrap()).await);
    }
}
