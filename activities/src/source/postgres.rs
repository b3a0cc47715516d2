//! PostgreSQL: binds, columns, and values as JSON.
//!
//! The server itself writes each value as JSON (`to_json`), which gives ISO 8601 for times and
//! exact integers. Decimals, alone or in arrays, are written as text first, so that 19.90 keeps its
//! digits; inside `json` and `jsonb` a number is what JSON says, a float.

use super::customer::IdType;
use super::session::{Bind, Bound, Column, RowData};
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgColumn, PgRow, PgTypeInfo, PgTypeKind};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column as _, Postgres, Row, TypeInfo, ValueRef};

pub(super) fn bind(bound: Bound) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(bound.sql)).persistent(false);
    bound.binds.into_iter().fold(query, |query, bind| match bind {
        Bind::Integer(value) => query.bind(value),
        Bind::Text(value) => query.bind(value),
    })
}

pub(super) fn column(column: &PgColumn) -> Column {
    let name = column.name();
    let quoted = format!("c.\"{}\"", name.replace('"', "\"\""));
    let kind = column.type_info();
    let read = match carried(kind) {
        Carried::AsItIs => Ok(format!("to_json({quoted})::text")),
        Carried::AsText => Ok(format!("to_json({quoted}::text)::text")),
        Carried::AsTexts => Ok(format!("to_json({quoted}::text[])::text")),
        Carried::Never if kind.name().starts_with("BYTEA") => Err(format!(
            "column {name:?} is of type bytea, which templates cannot use; leave it out, or select encode({name}, 'base64')"
        )),
        Carried::Never => Err(format!(
            "column {name:?} is of type {}, which templates cannot use; leave it out, or select its parts or a cast to text",
            kind.name().to_lowercase()
        )),
    };
    let id = match kind.name() {
        "INT2" | "INT4" | "INT8" => Some(IdType::Integer),
        "TEXT" | "VARCHAR" | "CHAR" => Some(IdType::Text),
        "UUID" => Some(IdType::Uuid),
        _ => None,
    };
    Column { name: name.to_owned(), read, id }
}

enum Carried {
    AsItIs,
    /// Decimals, and `char(n)` without its padding.
    AsText,
    /// The same in arrays.
    AsTexts,
    Never,
}

fn carried(kind: &PgTypeInfo) -> Carried {
    match kind.kind() {
        PgTypeKind::Composite(_) | PgTypeKind::Pseudo => Carried::Never,
        PgTypeKind::Domain(base) => carried(base),
        PgTypeKind::Array(element) => match carried(element) {
            Carried::AsText => Carried::AsTexts,
            other => other,
        },
        PgTypeKind::Simple | PgTypeKind::Enum(_) | PgTypeKind::Range(_) => match kind.name() {
            "NUMERIC" | "CHAR" => Carried::AsText,
            "BYTEA" => Carried::Never,
            _ => Carried::AsItIs,
        },
    }
}

pub(super) fn number(row: &PgRow) -> Result<i64, sqlx::Error> {
    row.try_get(0)
}

pub(super) fn text(row: &PgRow) -> Result<Option<String>, sqlx::Error> {
    row.try_get(0)
}

/// See `Session::affirms`.
pub(super) fn affirms(row: &PgRow) -> bool {
    // A row without columns is a row.
    let Ok(value) = row.try_get_raw(0) else { return row.is_empty() };
    if value.is_null() {
        return false;
    }
    match value.type_info().name() {
        "BOOL" => row.try_get(0).is_ok_and(|value: bool| value),
        "INT2" => row.try_get(0).is_ok_and(|value: i16| value != 0),
        "INT4" => row.try_get(0).is_ok_and(|value: i32| value != 0),
        "INT8" => row.try_get(0).is_ok_and(|value: i64| value != 0),
        _ => true,
    }
}

/// The row, whose columns are JSON texts.
pub(super) fn data(row: &PgRow, columns: &[Column]) -> RowData {
    let mut read = RowData::with_capacity(columns.len());
    for (index, Column { name, .. }) in columns.iter().enumerate() {
        let text: Result<Option<&str>, _> = row.try_get(index);
        let value = match text {
            Err(error) => Err(format!("column {name:?}: {error}")),
            Ok(text) => text.map_or(Ok(Value::Null), serde_json::from_str).map_err(|_| {
                format!("column {name:?} holds JSON that is out of range; select it as text")
            }),
        };
        read.add(name, value);
    }
    read
}
