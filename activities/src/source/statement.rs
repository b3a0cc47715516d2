//! The user's statements: `:name` becomes a bind, everything else is left as it was written.

use super::scanner::Scanner;
use std::fmt;

/// The database's flavour of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite: binds are `?1`, text is compared as bytes.
    Sqlite,
    /// PostgreSQL: binds are `$1`, each cast to its type.
    Postgres,
    /// MySQL and MariaDB: values are literals.
    Mysql,
}

/// A named parameter of the user's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `:customer_id`, in the type that the `customers` query gives it.
    CustomerId,
    /// `:operation_key`, text.
    OperationKey,
    /// `:campaign`, text.
    Campaign,
    /// `:period`, text such as `2026-W42`.
    Period,
    /// `:selected_at`, an instant.
    SelectedAt,
    /// `:period_start`, an instant.
    PeriodStart,
    /// `:period_end`, an instant, exclusive.
    PeriodEnd,
}

impl Parameter {
    /// Every parameter, in the order the documentation names them.
    pub const ALL: [Self; 7] = [
        Self::CustomerId,
        Self::OperationKey,
        Self::Campaign,
        Self::Period,
        Self::SelectedAt,
        Self::PeriodStart,
        Self::PeriodEnd,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CustomerId => "customer_id",
            Self::OperationKey => "operation_key",
            Self::Campaign => "campaign",
            Self::Period => "period",
            Self::SelectedAt => "selected_at",
            Self::PeriodStart => "period_start",
            Self::PeriodEnd => "period_end",
        }
    }

    /// Whether it belongs to one operation rather than to the whole run.
    #[must_use]
    pub fn is_of_one_operation(self) -> bool {
        matches!(self, Self::CustomerId | Self::OperationKey)
    }

    /// Whether it tells one period from another.
    #[must_use]
    pub fn is_of_one_period(self) -> bool {
        matches!(self, Self::Period | Self::PeriodStart | Self::PeriodEnd)
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.name())
    }
}

/// Why a text is not a statement digestd can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Nothing but blanks and comments.
    #[error("it is empty; write one SQL statement")]
    Empty,
    /// A `:name` that is none of ours.
    #[error(
        "there is no parameter :{name}; did you mean {nearest}? known are {}; put a blank after a colon that begins no parameter",
        known()
    )]
    UnknownParameter {
        /// The name as written.
        name: String,
        /// The known parameter nearest to it.
        nearest: Parameter,
    },
    /// A bind of the database's own kind, which would collide with the numbers we give.
    #[error("{0:?} is a bind of the database's own kind; use the named parameters {known}", known = known())]
    ForeignBind(String),
    /// MySQL: a backslash before a quote, which ends the literal or not by the server's `sql_mode`.
    #[error(
        "a backslash before a quote means one thing or another by the server's sql_mode; write a quote inside a text twice, and a backslash at its end as char(92)"
    )]
    AmbiguousQuote,
    /// MySQL: a comment that the server may run.
    #[error(
        "it holds a comment that the server may run as SQL (/*! or /*M!); write its content out, or leave it out"
    )]
    ExecutableComment,
    /// More than one statement.
    #[error("it holds more than one statement; keep the one before the first ';'")]
    SeveralStatements,
    /// A literal, identifier or comment that never ends.
    #[error("the {0} is never closed")]
    Unterminated(&'static str),
}

fn known() -> String {
    Parameter::ALL.map(|parameter| parameter.to_string()).join(" ")
}

/// One statement, cut at its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pieces: Vec<Piece>,
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Parameter(Parameter),
}

impl Statement {
    /// Cuts `sql`; a final `;` and what blanks and comments follow it are dropped.
    ///
    /// # Errors
    /// [`StatementError`] when it is not exactly one statement with known parameters.
    pub(super) fn parse(sql: &str, dialect: Dialect) -> Result<Self, StatementError> {
        Ok(Self { pieces: Scanner::new(sql, dialect).scan()? })
    }

    /// Whether the statement uses a parameter for which `is` holds.
    pub(super) fn uses(&self, is: impl Fn(Parameter) -> bool) -> bool {
        self.parameters().any(is)
    }

    /// The parameters in order of appearance, repeated as they are.
    pub(super) fn parameters(&self) -> impl Iterator<Item = Parameter> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Parameter(parameter) => Some(*parameter),
            Piece::Text(_) => None,
        })
    }

    /// MySQL: the names that a `delete` or an `update` gives before it says which rows and how; the
    /// tables that it changes are among them.
    pub(super) fn changed_names(&self) -> Vec<String> {
        let text = self.render(|_| " ".to_owned());
        let mut names = Vec::new();
        // What stands between backticks is one name.
        for (index, part) in text.split('`').enumerate() {
            if index % 2 == 1 {
                names.push(part.to_owned());
                continue;
            }
            let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            for word in part.split(|c| !is_name(c)).filter(|word| !word.is_empty()) {
                if ["where", "set"].iter().any(|end| word.eq_ignore_ascii_case(end)) {
                    return names;
                }
                names.push(word.to_owned());
            }
        }
        names
    }

    /// The SQL text with each parameter written as `bind` says.
    pub(super) fn render(&self, mut bind: impl FnMut(Parameter) -> String) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Parameter(parameter) => bind(*parameter),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleanup_names_its_tables_before_its_conditions() {
        for (sql, expected) in [
            ("delete from items where customer = 1", vec!["delete", "from", "items"]),
            ("update `my shop`.items SET a = b", vec!["update", "my shop", "items"]),
            ("delete i from items i where x", vec!["delete", "i", "from", "items", "i"]),
        ] {
            let statement = Statement::parse(sql, Dialect::Mysql).unwrap();
            assert_eq!(statement.changed_names(), expected, "{sql}");
        }
    }
}
