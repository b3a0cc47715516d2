//! SQLite: binds, columns, and values as JSON.
//!
//! A value has a type of its own here, whatever its column declares. Declared types still tell
//! `boolean` and dates apart, which are stored as numbers and texts. There are no decimals: a price
//! kept as `real` is a float, and `printf('%.2f', price) as price` gives it its digits back.

use super::customer::{ID_COLUMN, IdType};
use super::session::{Bind, Bound, Column, RowData};
use serde_json::{Number, Value};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteColumn, SqliteRow, SqliteValueRef};
use sqlx::{AssertSqlSafe, Column as _, Row, Sqlite, TypeInfo, ValueRef};

pub(super) fn bind(bound: Bound) -> Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(bound.sql)).persistent(false);
    bound.binds.into_iter().fold(query, |query, bind| match bind {
        Bind::Integer(value) => query.bind(value),
        Bind::Text(value) => query.bind(value),
    })
}

pub(super) fn column(column: &SqliteColumn) -> Column {
    let declared = column.type_info();
    let id = match declared.name() {
        "INTEGER" => Some(IdType::Integer),
        "TEXT" => Some(IdType::Text),
        _ => None,
    };
    let read = format!("c.\"{}\"", column.name().replace('"', "\"\""));
    Column { name: column.name().to_owned(), read: Ok(read), id }
}

pub(super) fn number(row: &SqliteRow) -> Result<i64, sqlx::Error> {
    row.try_get(0)
}

pub(super) fn text(row: &SqliteRow) -> Result<Option<String>, sqlx::Error> {
    row.try_get(0)
}

/// See `Session::affirms`.
pub(super) fn affirms(row: &SqliteRow) -> bool {
    let Ok(value) = row.try_get_raw(0) else { return false };
    if value.is_null() {
        return false;
    }
    match value.type_info().name() {
        "INTEGER" => row.try_get_unchecked::<i64, _>(0).is_ok_and(|value| value != 0),
        _ => true,
    }
}

/// The row as JSON.
pub(super) fn data(row: &SqliteRow) -> RowData {
    let mut read = RowData::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        let unreadable = |error: sqlx::Error| format!("column {:?}: {error}", column.name());
        let value = row.try_get_raw(index).map_err(unreadable);
        read.add(column.name(), value.and_then(|value| json(value, column)));
    }
    read
}

fn json(value: SqliteValueRef<'_>, column: &SqliteColumn) -> Result<Value, String> {
    let name = column.name();
    // An id keeps its type, whatever its column declares.
    let declared = if name == ID_COLUMN { "" } else { column.type_info().name() };
    if value.is_null() {
        // Its type would be the column's.
        return Ok(Value::Null);
    }
    let kind = value.type_info().name().to_owned();
    let unreadable =
        |_| format!("column {name:?} holds text that is not UTF-8; convert it in the query");
    Ok(match kind.as_str() {
        "INTEGER" => match <i64 as sqlx::Decode<Sqlite>>::decode(value).map_err(unreadable)? {
            flag @ (0 | 1) if declared == "BOOLEAN" => Value::Bool(flag == 1),
            number => Value::Number(number.into()),
        },
        "REAL" => {
            let number = <f64 as sqlx::Decode<Sqlite>>::decode(value).map_err(unreadable)?;
            Number::from_f64(number)
                .map_or_else(|| Value::String(number.to_string()), Value::Number)
        }
        "TEXT" => {
            let text = <String as sqlx::Decode<Sqlite>>::decode(value).map_err(unreadable)?;
            Value::String(if declared == "DATETIME" { iso_8601(text) } else { text })
        }
        _ => {
            return Err(format!(
                "column {name:?} holds a blob, which templates cannot use; leave it out, or select hex({name})"
            ));
        }
    })
}

/// `2026-10-12 09:00:00`, as SQLite's own functions write it, with the `T` of ISO 8601.
fn iso_8601(mut text: String) -> String {
    let shape = text.as_bytes();
    let is_date = |b: &[u8]| b[4] == b'-' && b[7] == b'-' && b[..4].iter().all(u8::is_ascii_digit);
    if shape.len() >= 16 && shape[10] == b' ' && is_date(shape) && text.is_ascii() {
        text.replace_range(10..11, "T");
    }
    text
}
