//! Values for the parameters, and the numbered binds they become.
//!
//! A bind is an integer or a text. On PostgreSQL the text is cast in the statement to what it
//! stands for, so that a statement prepared without values has the same types as one with them. An
//! instant is a `timestamptz` there, and the session's time zone is UTC: it compares rightly with
//! `timestamptz`, and with `timestamp` and `date` columns kept in UTC. SQLite has no such type: an instant is the text that
//! its own functions write, `2026-10-12 09:00:00` in UTC.
//!
//! On MySQL a value is a literal in the statement's text. A prepared statement there has to be closed
//! again, and what is sent after that, which nobody answers, waits for the other side's delayed
//! acknowledgement (40 ms on Linux), since the connection keeps Nagle's algorithm. A text is written
//! in hexadecimal, so no SQL mode or character set reads it otherwise, and without a collation, so
//! that a comparison follows the column's, whose index can then answer it. An instant is a
//! `timestamp'…'` in the session's UTC.

use super::customer::{CustomerId, IdType};
use super::session::{Bind, Bound};
use super::statement::{Dialect, Parameter, Statement};
use data_encoding::HEXLOWER;
use digest_workflows::operation::key::OperationKey;
use digest_workflows::operation::period::Period;
use jiff::Timestamp;

/// What a run binds to the named parameters. Those of one operation come from its key.
///
/// Instants are in UTC. On PostgreSQL they compare with `timestamptz`, `timestamp` and `date`
/// columns; on MySQL and MariaDB with `timestamp`, and with `datetime` and `date` columns kept in UTC
/// (others as `created_at >= convert_tz(:period_start, '+00:00', '+02:00')`). On SQLite they are texts like `2026-10-12 09:00:00` (a fraction only where there is one),
/// which compare with what `current_timestamp` and `datetime()` write. A column of ISO texts with a
/// `T` is compared as `created_at >= strftime('%Y-%m-%dT%H:%M:%SZ', :period_start)`, one of seconds
/// since 1970 as `created_at >= unixepoch(:period_start)`; both can use an index.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// `:campaign`.
    pub campaign: &'a str,
    /// `:period`.
    pub period: Period,
    /// `:selected_at`, when the run's selection was made.
    pub selected_at: Timestamp,
    /// `:period_start`, the previous week's tick.
    pub period_start: Timestamp,
    /// `:period_end`, this period's tick; exclusive.
    pub period_end: Timestamp,
}

/// Collects the binds of one statement.
pub(super) struct Binder {
    dialect: Dialect,
    binds: Vec<Bind>,
}

/// What a bound text stands for.
#[derive(Clone, Copy)]
enum Stands {
    Text,
    Uuid,
    Instant,
}

impl Binder {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, binds: Vec::new() }
    }

    /// The statement's text, with its parameters bound. `operation` is given for the statements of
    /// one operation; the others were refused when they name its parameters.
    pub(super) fn statement(
        &mut self,
        statement: &Statement,
        parameters: &Parameters<'_>,
        operation: Option<(&OperationKey, &CustomerId)>,
    ) -> String {
        let mut bound: Vec<(Parameter, String)> = Vec::new();
        statement.render(|parameter| {
            if let Some((_, text)) = bound.iter().find(|(known, _)| *known == parameter) {
                return text.clone();
            }
            let text = match (parameter, operation) {
                (Parameter::Campaign, _) => self.text(parameters.campaign.to_owned()),
                (Parameter::Period, _) => self.text(parameters.period.to_string()),
                (Parameter::SelectedAt, _) => self.instant(parameters.selected_at),
                (Parameter::PeriodStart, _) => self.instant(parameters.period_start),
                (Parameter::PeriodEnd, _) => self.instant(parameters.period_end),
                (Parameter::OperationKey, Some((key, _))) => self.text(key.to_string()),
                (Parameter::CustomerId, Some((_, id))) => self.id(id),
                (Parameter::OperationKey | Parameter::CustomerId, None) => "null".to_owned(),
            };
            bound.push((parameter, text.clone()));
            text
        })
    }

    /// Binds an id with its own type.
    pub(super) fn id(&mut self, id: &CustomerId) -> String {
        match id {
            CustomerId::Integer(id) => self.integer(*id),
            // MySQL takes digits beyond a bigint for an unsigned one.
            CustomerId::Unsigned(id) => id.to_string(),
            CustomerId::Text(id) => self.text(id.clone()),
            CustomerId::Uuid(id) => self.add(id.to_string(), Stands::Uuid),
        }
    }

    /// A condition that `column` is one of `ids`, all of one type, that an index can answer.
    pub(super) fn is_one_of(&mut self, column: &str, ids: &[CustomerId], kind: IdType) -> String {
        let array_type = match (self.dialect, kind) {
            (Dialect::Mysql, _) => {
                let list: Vec<String> = ids.iter().map(|id| self.id(id)).collect();
                return format!("{column} in ({})", list.join(", "));
            }
            (Dialect::Sqlite, _) => {
                let list = self.bind(Bind::Text(json_array(ids)));
                return format!("{column} in (select value from json_each({list}))");
            }
            (Dialect::Postgres, IdType::Integer | IdType::Unsigned) => "bigint[]",
            (Dialect::Postgres, IdType::Text) => "text[]",
            (Dialect::Postgres, IdType::Uuid) => "uuid[]",
        };
        let list = self.bind(Bind::Text(array_literal(ids)));
        format!("{column} = any ({list}::text::{array_type})")
    }

    fn integer(&mut self, value: i64) -> String {
        match self.dialect {
            Dialect::Sqlite => self.bind(Bind::Integer(value)),
            Dialect::Postgres => format!("{}::bigint", self.bind(Bind::Integer(value))),
            Dialect::Mysql => value.to_string(),
        }
    }

    pub(super) fn text(&mut self, value: String) -> String {
        self.add(value, Stands::Text)
    }

    fn instant(&mut self, value: Timestamp) -> String {
        let text = match self.dialect {
            // `%.f` writes no fraction where there is none.
            Dialect::Sqlite | Dialect::Mysql => value.strftime("%Y-%m-%d %H:%M:%S%.f").to_string(),
            Dialect::Postgres => value.to_string(),
        };
        self.add(text, Stands::Instant)
    }

    fn add(&mut self, value: String, stands: Stands) -> String {
        let kind = match (self.dialect, stands) {
            (Dialect::Mysql, Stands::Text | Stands::Uuid) => return hexadecimal(&value),
            (Dialect::Mysql, Stands::Instant) => return format!("timestamp'{value}'"),
            (Dialect::Sqlite, _) => "",
            (Dialect::Postgres, Stands::Text) => "::text",
            (Dialect::Postgres, Stands::Uuid) => "::text::uuid",
            (Dialect::Postgres, Stands::Instant) => "::text::timestamptz",
        };
        format!("{}{kind}", self.bind(Bind::Text(value)))
    }

    /// Adds a bind; how the statement names it.
    fn bind(&mut self, bind: Bind) -> String {
        self.binds.push(bind);
        let sign = if self.dialect == Dialect::Sqlite { '?' } else { '$' };
        format!("{sign}{}", self.binds.len())
    }

    /// The finished statement.
    pub(super) fn bound(self, sql: String) -> Bound {
        Bound { sql, binds: self.binds }
    }
}

/// A text as MySQL takes it in any SQL mode.
fn hexadecimal(text: &str) -> String {
    format!("_utf8mb4 x'{}'", HEXLOWER.encode(text.as_bytes()))
}

fn json_array(ids: &[CustomerId]) -> String {
    let values = ids.iter().map(|id| match id {
        CustomerId::Integer(id) => serde_json::Value::from(*id),
        other => serde_json::Value::from(other.to_string()),
    });
    serde_json::Value::Array(values.collect()).to_string()
}

/// An array as PostgreSQL reads it from text (its documentation, 8.15.2), every element quoted.
fn array_literal(ids: &[CustomerId]) -> String {
    let quote = |id: &CustomerId| {
        format!("\"{}\"", id.to_string().replace('\\', "\\\\").replace('"', "\\\""))
    };
    format!("{{{}}}", ids.iter().map(quote).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters<'static> {
        Parameters {
            campaign: "digest",
            period: Period::parse("2026-W42").unwrap(),
            selected_at: "2026-10-12T07:00:01.25Z".parse().unwrap(),
            period_start: "2026-10-05T07:00:00Z".parse().unwrap(),
            period_end: "2026-10-12T07:00:00Z".parse().unwrap(),
        }
    }

    fn shown(sql: &str, dialect: Dialect) -> (String, Vec<String>) {
        let statement = Statement::parse(sql, dialect).unwrap();
        let key = OperationKey::new("digest", parameters().period, "7").unwrap();
        let mut binder = Binder::new(dialect);
        let id = CustomerId::Integer(7);
        let sql = binder.statement(&statement, &parameters(), Some((&key, &id)));
        let show = |bind: &Bind| match bind {
            Bind::Integer(value) => value.to_string(),
            Bind::Text(value) => format!("{value:?}"),
        };
        (sql, binder.binds.iter().map(show).collect())
    }

    #[test]
    fn each_parameter_is_bound_with_its_type() {
        let sql = "a(:customer_id, :operation_key, :customer_id, :period_end, :selected_at)";
        let (text, binds) = shown(sql, Dialect::Postgres);
        assert_eq!(
            text,
            "a($1::bigint, $2::text, $1::bigint, $3::text::timestamptz, $4::text::timestamptz)"
        );
        let key = "\"digest:2026-W42:7\"";
        assert_eq!(binds, ["7", key, "\"2026-10-12T07:00:00Z\"", "\"2026-10-12T07:00:01.25Z\""]);
        let (text, binds) = shown(sql, Dialect::Sqlite);
        assert_eq!(text, "a(?1, ?2, ?1, ?3, ?4)");
        let (end, selected) = ("\"2026-10-12 07:00:00\"", "\"2026-10-12 07:00:01.25\"");
        assert_eq!(binds, ["7", key, end, selected]);
        let (text, binds) = shown(sql, Dialect::Mysql);
        let key = "_utf8mb4 x'6469676573743a323032362d5734323a37'";
        let instants = "timestamp'2026-10-12 07:00:00', timestamp'2026-10-12 07:00:01.25'";
        assert_eq!(text, format!("a(7, {key}, 7, {instants})"));
        assert!(binds.is_empty());
    }

    #[test]
    fn lists_of_ids_survive_quotes_and_backslashes() {
        let ids = ["a", "b\"c", "d\\e", "{f,g}", "null"].map(|id| CustomerId::Text(id.to_owned()));
        assert_eq!(array_literal(&ids), r#"{"a","b\"c","d\\e","{f,g}","null"}"#);
        assert_eq!(json_array(&ids), r#"["a","b\"c","d\\e","{f,g}","null"]"#);
    }
}
