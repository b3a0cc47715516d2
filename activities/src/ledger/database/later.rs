//! Statements of a transaction that are executed together.

use super::Value;

/// What is still to be executed: the text of several statements, and their values in one row.
#[derive(Default)]
pub(in crate::ledger) struct Later {
    sql: String,
    values: Vec<Value>,
}

impl Later {
    /// Adds one statement. Its `$1` becomes the first place behind those of the statements before.
    pub(super) fn push(&mut self, sql: &str, values: &[Value]) {
        let before = self.values.len();
        let mut parts = sql.split('$');
        self.sql.extend(parts.next());
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            let place = number.parse::<usize>().map(|number| (before + number).to_string());
            self.sql.push('$');
            self.sql.push_str(place.as_deref().unwrap_or(number));
            self.sql.push_str(rest);
        }
        self.sql.push_str("; ");
        self.values.extend_from_slice(values);
    }

    /// All of it, if there is any.
    pub(super) fn take(&mut self) -> Option<(String, Vec<Value>)> {
        let Self { sql, values } = std::mem::take(self);
        (!sql.is_empty()).then_some((sql, values))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

    use super::super::values;
    use super::Later;

    #[test]
    fn each_statement_has_places_of_its_own() {
        let mut later = Later::default();
        assert!(later.take().is_none());
        later.push("update a set b = $2, c = $10 where d = $1", values![1_i64, 2_i64]);
        later.push("insert into e values ($1, $1)", values!["f"]);
        later.push("delete from g", &[]);
        let (sql, values) = later.take().unwrap();
        assert_eq!(
            sql,
            "update a set b = $2, c = $10 where d = $1; insert into e values ($3, $3); \
             delete from g; "
        );
        assert_eq!(values.len(), 3);
        assert!(later.take().is_none());
    }
}
