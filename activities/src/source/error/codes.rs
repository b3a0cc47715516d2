//! What the databases' error codes mean, and which of their words may be repeated.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::sqlite::SqliteError;

/// What a caller does about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Temporary,
    OutOfTime,
    Value,
    Permanent,
}

pub(super) fn judge(answer: &dyn DatabaseError) -> Judgement {
    let code = answer.code().unwrap_or_default();
    if is_sqlite(answer) {
        // The primary result code is the low byte (sqlite.org/rescode.html).
        return match code.parse::<i32>().unwrap_or_default() & 0xff {
            // NOMEM, BUSY, LOCKED, IOERR, FULL, PROTOCOL, SCHEMA
            7 | 5 | 6 | 10 | 13 | 15 | 17 => Judgement::Temporary,
            // INTERRUPT
            9 => Judgement::OutOfTime,
            // TOOBIG, MISMATCH
            18 | 20 => Judgement::Value,
            _ => Judgement::Permanent,
        };
    }
    if let Some(number) = mysql_number(answer) {
        return judge_mysql(number, &code);
    }
    // PostgreSQL documentation, appendix A.
    match (code.as_ref(), code.get(..2).unwrap_or_default()) {
        // query_canceled, which our own statement_timeout causes
        ("57014", _) => Judgement::OutOfTime,
        // database_dropped
        ("57P04", _) => Judgement::Permanent,
        // lock_not_available; connection, rollback, resources, operator, system
        ("55P03", _) | (_, "08" | "40" | "53" | "57" | "58") => Judgement::Temporary,
        (_, "22") => Judgement::Value,
        _ => Judgement::Permanent,
    }
}

/// By number, since most have the SQLSTATE HY000 (MySQL's error message reference; MariaDB's error
/// codes, which are the same below 1900).
#[expect(clippy::match_same_arms, reason = "each line of numbers has a cause of its own")]
fn judge_mysql(number: u16, state: &str) -> Judgement {
    let class = state.get(..2).unwrap_or_default();
    match number {
        // Our own max_statement_time (MariaDB) and max_execution_time (MySQL).
        1969 | 3024 => Judgement::OutOfTime,
        // A value that does not fit its column or function.
        1366 | 1411 | 1525 => Judgement::Value,
        // Resources: disk, memory, connections, threads.
        1021 | 1037 | 1038 | 1040 | 1041 | 1135 | 1203 | 1226 => Judgement::Temporary,
        // Shutdown, a killed statement or connection, one that was idle for too long.
        1053 | 1077..=1079 | 1184 | 1317 | 1927 | 4031 => Judgement::Temporary,
        // Locks, deadlocks, changed rows or tables, a commit that failed.
        1020 | 1180 | 1205 | 1206 | 1213 | 1412 | 1615 => Judgement::Temporary,
        // A primary that is becoming a replica.
        1290 | 1836 => Judgement::Temporary,
        _ if class == "22" => Judgement::Value,
        // Connection (with a cluster's node that is not ready, 1047), rollback.
        _ if class == "08" || class == "40" => Judgement::Temporary,
        _ => Judgement::Permanent,
    }
}

/// The database's own words, unless they may repeat a value: PostgreSQL quotes the offending one in
/// class 22, MySQL also where a key is not unique, and a user's function says what it likes (class
/// P0, or 45).
pub(crate) fn words(answer: &dyn DatabaseError) -> String {
    let code = answer.code().unwrap_or_default();
    if is_sqlite(answer) {
        return answer.message().to_owned();
    }
    let number = mysql_number(answer);
    let code = match number {
        Some(number) => format!("error {number}, SQLSTATE {code}"),
        None => format!("SQLSTATE {code}"),
    };
    let class = answer.code().unwrap_or_default();
    match class.get(..2).unwrap_or_default() {
        _ if judge(answer) == Judgement::Value => {
            format!("a value does not fit its type or function ({code})")
        }
        "23" if number.is_some() => format!("a key or constraint does not allow it ({code})"),
        "P0" => format!("a function raised an error ({code})"),
        "45" if number.is_some() => format!("a trigger or function raised an error ({code})"),
        _ => format!("{} ({code})", answer.message()),
    }
}

/// What somebody has to do about an answer, where the code tells: a disk is full, or a database can only
/// be read.
pub(crate) fn cure(answer: &dyn DatabaseError) -> Option<&'static str> {
    const ROOM: &str = "make room on its disk";
    const WRITABLE: &str = "it can only be read: give the url of the server that is written to, or make the file writable";
    let code = answer.code().unwrap_or_default();
    if is_sqlite(answer) {
        return match code.parse::<i32>().unwrap_or_default() & 0xff {
            // READONLY, FULL
            8 => Some(WRITABLE),
            13 => Some(ROOM),
            _ => None,
        };
    }
    match code.as_ref() {
        // read_only_sql_transaction; disk_full
        "25006" => Some(WRITABLE),
        "53100" => Some(ROOM),
        _ => None,
    }
}

pub(super) fn is_sqlite(answer: &dyn DatabaseError) -> bool {
    answer.try_downcast_ref::<SqliteError>().is_some()
}

fn mysql_number(answer: &dyn DatabaseError) -> Option<u16> {
    answer.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mysql_errors_are_told_apart_by_what_helps() {
        use Judgement::{OutOfTime, Permanent, Temporary, Value};
        for (number, state, expected) in [
            (1205, "HY000", Temporary),
            (1213, "40001", Temporary),
            (1040, "08004", Temporary),
            (1047, "08S01", Temporary),
            (1836, "HY000", Temporary),
            (1969, "70100", OutOfTime),
            (3024, "HY000", OutOfTime),
            (1292, "22007", Value),
            (1366, "HY000", Value),
            (1045, "28000", Permanent),
            (1054, "42S22", Permanent),
            (1142, "42000", Permanent),
            (1792, "25006", Permanent),
        ] {
            assert_eq!(judge_mysql(number, state), expected, "{number}");
        }
    }
}
