//! MySQL and MariaDB: columns, and values as JSON.
//!
//! A value comes as the text that the server writes, and is read in the type that it names: exact
//! integers, decimals with their digits (as texts), dates and times as ISO 8601. A `timestamp` is an instant
//! and carries its offset, which is UTC in our sessions; a `datetime` is whatever the shop keeps in
//! it and carries none. A date that is none (`0000-00-00`) is null.
//!
//! `boolean` is a name for `tinyint(1)`, so 0 and 1 of one are false and true. A `bit` is a number,
//! since the protocol does not tell `bit(1)` from a wider one. MySQL's `json` is carried as JSON;
//! MariaDB's is a name for `longtext`, and so a text.

use super::customer::{ID_COLUMN, IdType};
use super::session::{Bound, Column, RowData};
use serde_json::{Number, Value};
use sqlx::mysql::{MySqlColumn, MySqlRow, MySqlTypeInfo};
use sqlx::{AssertSqlSafe, Column as _, Decode, MySql, RawSql, Row, Type, TypeInfo, ValueRef};

/// The statement in the text protocol; see `binder` for why it is not prepared.
pub(super) fn query(bound: Bound) -> RawSql {
    sqlx::raw_sql(AssertSqlSafe(bound.sql))
}

pub(super) fn column(column: &MySqlColumn) -> Column {
    let name = column.name();
    let carried = carried(column.type_info());
    let id = match carried {
        Carried::Flag | Carried::Integer => Some(IdType::Integer),
        Carried::Unsigned => Some(IdType::Unsigned),
        Carried::Text => Some(IdType::Text),
        _ => None,
    };
    let refused = |cure: &str| {
        let kind = column.type_info().name().to_lowercase();
        Err(format!("column {name:?} is of type {kind}, which templates cannot use; {cure}"))
    };
    let read = match carried {
        Carried::Binary => {
            refused(&format!("leave it out, or select to_base64({name}), or lower(hex({name}))"))
        }
        Carried::Never => refused("leave it out, or select its parts or a text made of it"),
        _ => Ok(format!("c.`{}`", name.replace('`', "``"))),
    };
    Column { name: name.to_owned(), read, id }
}

/// How a value travels, and what becomes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// `tinyint(1)`.
    Flag,
    Integer,
    /// `bigint unsigned`.
    Unsigned,
    /// Bits, most significant first, and years.
    Bits,
    Float,
    Decimal,
    Text,
    /// `enum`, which is ordered by the places of its values.
    Enum,
    Json,
    Date,
    DateTime,
    Instant,
    Time,
    Null,
    /// Bytes.
    Binary,
    Never,
}

fn carried(kind: &MySqlTypeInfo) -> Carried {
    match kind.name() {
        "BOOLEAN" => Carried::Flag,
        "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => Carried::Integer,
        // These fit into a signed one.
        "TINYINT UNSIGNED" | "SMALLINT UNSIGNED" | "MEDIUMINT UNSIGNED" | "INT UNSIGNED" => {
            Carried::Integer
        }
        "BIGINT UNSIGNED" => Carried::Unsigned,
        "BIT" | "YEAR" => Carried::Bits,
        "FLOAT" | "DOUBLE" => Carried::Float,
        "DECIMAL" => Carried::Decimal,
        "JSON" => Carried::Json,
        "DATE" => Carried::Date,
        "DATETIME" => Carried::DateTime,
        "TIMESTAMP" => Carried::Instant,
        "TIME" => Carried::Time,
        "NULL" => Carried::Null,
        "GEOMETRY" => Carried::Never,
        "ENUM" | "SET" => Carried::Enum,
        // The name takes a text of a binary collation for bytes; its character set tells.
        _ if <str as Type<MySql>>::compatible(kind) => Carried::Text,
        _ => Carried::Binary,
    }
}

pub(super) fn number(row: &MySqlRow) -> Result<i64, sqlx::Error> {
    row.try_get(0)
}

pub(super) fn text(row: &MySqlRow) -> Result<Option<String>, sqlx::Error> {
    row.try_get(0)
}

/// See `Session::affirms`. A sum is a decimal here, and a flag often a bit: 0 is a no in any of them.
pub(super) fn affirms(row: &MySqlRow) -> bool {
    match value(row, 0) {
        Ok(Value::Null | Value::Bool(false)) | Err(_) => false,
        Ok(Value::Number(number)) => number.as_f64() != Some(0.0),
        Ok(Value::String(text)) if carried(row.column(0).type_info()) == Carried::Decimal => {
            text.bytes().any(|digit| matches!(digit, b'1'..=b'9'))
        }
        Ok(_) => true,
    }
}

/// The row as JSON.
pub(super) fn data(row: &MySqlRow) -> RowData {
    let mut read = RowData::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        let name = column.name();
        let value = match value(row, index) {
            // An id is a number, whatever its column is called.
            Ok(Value::Bool(flag)) if name == ID_COLUMN => Ok(Value::from(u8::from(flag))),
            Ok(value) => Ok(value),
            Err(reason) => Err(format!("column {name:?} {reason}")),
        };
        read.add(name, value);
    }
    read
}

fn value(row: &MySqlRow, index: usize) -> Result<Value, &'static str> {
    let value = row.try_get_raw(index).map_err(|_| "is not there")?;
    let kind = carried(&value.type_info());
    if value.is_null() {
        return Ok(Value::Null);
    }
    if kind == Carried::Bits {
        let bits = <u64 as Decode<MySql>>::decode(value).map_err(|_| UNREADABLE)?;
        return Ok(bits.into());
    }
    if kind == Carried::Binary {
        return Err("holds bytes, which templates cannot use; leave it out, or select it in hex()");
    }
    let text = <&str as Decode<MySql>>::decode(value)
        .map_err(|_| "holds text that is not UTF-8; convert it in the query")?;
    Ok(match kind {
        Carried::Flag if text == "0" => Value::Bool(false),
        Carried::Flag if text == "1" => Value::Bool(true),
        Carried::Flag | Carried::Integer => text.parse::<i64>().map_err(|_| UNREADABLE)?.into(),
        Carried::Unsigned => text.parse::<u64>().map_err(|_| UNREADABLE)?.into(),
        Carried::Float => {
            let number = text.parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or(UNREADABLE)?)
        }
        Carried::Json => serde_json::from_str(text)
            .map_err(|_| "holds JSON that is out of range; select it as text")?,
        Carried::Date => date(text).map_or(Value::Null, Value::from),
        Carried::DateTime => date_time(text).map_or(Value::Null, Value::from),
        Carried::Instant => {
            date_time(text).map_or(Value::Null, |text| Value::from(text + "+00:00"))
        }
        Carried::Time => without_zeros(text).into(),
        Carried::Decimal | Carried::Text | Carried::Enum => text.into(),
        Carried::Null | Carried::Bits | Carried::Binary | Carried::Never => {
            return Err("is of a type that templates cannot use; leave it out");
        }
    })
}

const UNREADABLE: &str = "holds what its type does not allow; cast it in the query";

/// A date that exists: old shops have `0000-00-00`, and days of which only the year is known.
fn date(text: &str) -> Option<&str> {
    let exists = !text.get(5..)?.split('-').any(|part| part == "00");
    exists.then_some(text)
}

/// `2026-10-12 09:00:00.500` with the `T` of ISO 8601, and no zeros that say nothing.
fn date_time(text: &str) -> Option<String> {
    let (day, time) = text.split_once(' ')?;
    Some(format!("{}T{}", date(day)?, without_zeros(time)))
}

fn without_zeros(time: &str) -> &str {
    if time.contains('.') { time.trim_end_matches('0').trim_end_matches('.') } else { time }
}
