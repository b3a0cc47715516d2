//! MySQL and MariaDB: binds, columns, and values as JSON.
//!
//! A value is read from the binary protocol in the type that the server names: exact integers,
//! decimals with their digits (as texts), dates and times as ISO 8601. A `timestamp` is an instant
//! and carries its offset, which is UTC in our sessions; a `datetime` is whatever the shop keeps in
//! it and carries none. A date that is none (`0000-00-00`) is null.
//!
//! `boolean` is a name for `tinyint(1)`, so 0 and 1 of one are false and true. A `bit` is a number,
//! since the protocol does not tell `bit(1)` from a wider one. MySQL's `json` is carried as JSON;
//! MariaDB's is a name for `longtext`, and so a text.

use super::customer::{Data, ID_COLUMN, IdType};
use super::session::{Bind, Bound, Column};
use serde_json::{Number, Value};
use sqlx::mysql::{MySqlArguments, MySqlColumn, MySqlRow, MySqlTypeInfo};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column as _, Decode, MySql, Row, Type, TypeInfo, ValueRef};

pub(super) fn bind(bound: Bound) -> Query<'static, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(bound.sql)).persistent(false);
    bound.binds.into_iter().fold(query, |query, bind| match bind {
        Bind::Integer(value) => query.bind(value),
        Bind::Text(value) => query.bind(value),
    })
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
    Single,
    Double,
    /// Texts, and what is one on the wire: decimals.
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
        "FLOAT" => Carried::Single,
        "DOUBLE" => Carried::Double,
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

/// The row as JSON; else which column cannot be carried, and the cure.
pub(super) fn data(row: &MySqlRow) -> Result<Data, String> {
    let mut data = Data::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        let name = column.name();
        let mut value = value(row, index).map_err(|reason| format!("column {name:?} {reason}"))?;
        // An id is a number, whatever its column is called.
        if let (ID_COLUMN, Value::Bool(flag)) = (name, &value) {
            value = Value::from(u8::from(*flag));
        }
        data.insert(name.to_owned(), value);
    }
    Ok(data)
}

fn value(row: &MySqlRow, index: usize) -> Result<Value, &'static str> {
    let unreadable = |_| "holds what its type does not allow; cast it in the query";
    let value = row.try_get_raw(index).map_err(|_| "is not there")?;
    let kind = carried(&value.type_info());
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match kind {
        Carried::Flag => match <i64 as Decode<MySql>>::decode(value).map_err(unreadable)? {
            flag @ (0 | 1) => Value::Bool(flag == 1),
            number => number.into(),
        },
        Carried::Integer => signed(row, index).ok_or("holds no integer")?.into(),
        Carried::Unsigned | Carried::Bits => {
            <u64 as Decode<MySql>>::decode(value).map_err(unreadable)?.into()
        }
        Carried::Single => {
            let number = <f32 as Decode<MySql>>::decode(value).map_err(unreadable)?;
            // By its digits, which as a double would have a tail that nobody wrote.
            let number = number.to_string().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or("holds no finite number")?)
        }
        Carried::Double => {
            let number = <f64 as Decode<MySql>>::decode(value).map_err(unreadable)?;
            Value::Number(Number::from_f64(number).ok_or("holds no finite number")?)
        }
        Carried::Decimal | Carried::Text | Carried::Enum => {
            let text = <String as Decode<MySql>>::decode(value);
            Value::String(text.map_err(|_| "holds text that is not UTF-8; convert it in the query")?)
        }
        Carried::Json => {
            let text = <&str as Decode<MySql>>::decode(value).map_err(unreadable)?;
            serde_json::from_str(text)
                .map_err(|_| "holds JSON that is out of range; select it as text")?
        }
        Carried::Date | Carried::DateTime | Carried::Instant | Carried::Time => {
            let bytes = <&[u8] as Decode<MySql>>::decode(value).map_err(unreadable)?;
            let text = if kind == Carried::Time { time(bytes) } else { date_time(bytes, kind) };
            text.map_or(Value::Null, Value::String)
        }
        Carried::Null => Value::Null,
        Carried::Binary | Carried::Never => return Err("holds bytes, which templates cannot use"),
    })
}

/// An integer of any width.
fn signed(row: &MySqlRow, index: usize) -> Option<i64> {
    let is_unsigned = row.column(index).type_info().name().ends_with("UNSIGNED");
    if is_unsigned {
        let number: u64 = row.try_get_unchecked(index).ok()?;
        return i64::try_from(number).ok();
    }
    row.try_get_unchecked(index).ok()
}

/// `date`, `datetime` and `timestamp` in the binary protocol: a length, then year, month and day,
/// hour, minute and second, microseconds, as far as they are not zero. `None` for no date.
fn date_time(bytes: &[u8], kind: Carried) -> Option<String> {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let year = u16::from_le_bytes([part(1), part(2)]);
    let (month, day) = (part(3), part(4));
    if month == 0 || day == 0 {
        return None;
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if kind != Carried::Date {
        text.push_str(&format!("T{:02}:{:02}:{:02}", part(5), part(6), part(7)));
        text.push_str(&fraction([part(8), part(9), part(10), part(11)]));
    }
    if kind == Carried::Instant {
        text.push_str("+00:00");
    }
    Some(text)
}

/// `time` in the binary protocol: a length, the sign, days, hour, minute and second, microseconds,
/// as far as they are not zero. It may be more than a day.
fn time(bytes: &[u8]) -> Option<String> {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let sign = if part(1) == 1 { "-" } else { "" };
    let days = u32::from_le_bytes([part(2), part(3), part(4), part(5)]);
    let hours = days.checked_mul(24)?.checked_add(u32::from(part(6)))?;
    let fraction = fraction([part(9), part(10), part(11), part(12)]);
    Some(format!("{sign}{hours:02}:{:02}:{:02}{fraction}", part(7), part(8)))
}

/// Microseconds as digits behind a point, none where there are none.
fn fraction(bytes: [u8; 4]) -> String {
    match u32::from_le_bytes(bytes) {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    }
}
