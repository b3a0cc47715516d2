//! The user's statements: `:name` becomes a numbered bind, everything else is left as it was written.
//!
//! The scanner knows just enough of SQL's lexical rules (PostgreSQL documentation 4.1, SQLite's
//! "SQL As Understood By SQLite") to tell a parameter from a colon in a string literal, a quoted
//! identifier, a comment, a dollar-quoted string or a `::cast`. It understands no grammar: that is
//! the database's work.

use std::fmt;

/// The database's flavour of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite: binds are `?1`, text is compared as bytes.
    Sqlite,
    /// PostgreSQL: binds are `$1`, each cast to its type.
    Postgres,
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

    fn name(self) -> &'static str {
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Parameter(Parameter),
}

impl Statement {
    /// Cuts `sql`; a final `;` and what blanks and comments follow it are dropped.
    ///
    /// # Errors
    /// [`StatementError`] when it is not exactly one statement with known parameters.
    pub(super) fn parse(sql: &str, dialect: Dialect) -> Result<Self, StatementError> {
        Scanner { rest: sql, dialect, text: String::new(), pieces: Vec::new() }.scan()
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

struct Scanner<'a> {
    rest: &'a str,
    dialect: Dialect,
    text: String,
    pieces: Vec<Piece>,
}

impl<'a> Scanner<'a> {
    fn scan(mut self) -> Result<Statement, StatementError> {
        let mut empty = true;
        let mut ended = false;
        while let Some(next) = self.rest.chars().next() {
            let blank = next.is_whitespace() || self.comment()?;
            if blank {
                if next.is_whitespace() {
                    self.keep(next.len_utf8());
                }
                continue;
            }
            if ended {
                return Err(StatementError::SeveralStatements);
            }
            if next == ';' {
                // What follows may only be blank; it is kept out of the statement below.
                ended = true;
                self.flush();
                self.rest = &self.rest[1..];
                continue;
            }
            empty = false;
            self.token(next)?;
        }
        if empty {
            return Err(StatementError::Empty);
        }
        if !ended {
            self.flush();
        }
        Ok(Statement { pieces: self.pieces })
    }

    /// Takes one token that is neither blank nor a comment.
    fn token(&mut self, next: char) -> Result<(), StatementError> {
        let postgres = self.dialect == Dialect::Postgres;
        match next {
            '\'' => self.quoted('\'', "string literal"),
            '"' => self.quoted('"', "quoted identifier"),
            '`' if !postgres => self.quoted('`', "quoted identifier"),
            '[' if !postgres => self.quoted(']', "quoted identifier"),
            '$' => self.dollar(),
            '?' | '@' if !postgres => self.foreign_bind(),
            ':' => self.colon(),
            _ if is_word(next) => self.word(),
            _ => {
                self.keep(next.len_utf8());
                Ok(())
            }
        }
    }

    /// Takes a comment if one begins here.
    fn comment(&mut self) -> Result<bool, StatementError> {
        if self.rest.starts_with("--") {
            self.keep(self.rest.find('\n').unwrap_or(self.rest.len()));
            return Ok(true);
        }
        if !self.rest.starts_with("/*") {
            return Ok(false);
        }
        let nests = self.dialect == Dialect::Postgres;
        let (mut at, mut depth) = (2, 1);
        while depth > 0 {
            let rest = &self.rest[at..];
            let end = rest.find("*/").ok_or(StatementError::Unterminated("comment"))?;
            match rest.find("/*") {
                Some(begin) if nests && begin < end => (at, depth) = (at + begin + 2, depth + 1),
                _ => (at, depth) = (at + end + 2, depth - 1),
            }
        }
        self.keep(at);
        Ok(true)
    }

    /// A token that begins here and runs to `close`; a doubled `close` stands for itself.
    fn quoted(&mut self, close: char, what: &'static str) -> Result<(), StatementError> {
        let mut at = 1;
        loop {
            let end = self.rest[at..].find(close).ok_or(StatementError::Unterminated(what))?;
            at += end + 1;
            // SQLite's [identifiers] know no doubling.
            if close == ']' || !self.rest[at..].starts_with(close) {
                break;
            }
            at += 1;
        }
        self.keep(at);
        Ok(())
    }

    /// PostgreSQL's `E'…'`, in which a backslash escapes the quote. Begins at the quote.
    fn escaped_literal(&mut self) -> Result<(), StatementError> {
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => {
                    characters.next();
                }
                '\'' if matches!(characters.peek(), Some((_, '\''))) => {
                    characters.next();
                }
                '\'' => {
                    self.keep(at + 1);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(StatementError::Unterminated("string literal"))
    }

    /// A dollar outside a word: PostgreSQL's `$tag$…$tag$`, or a bind of the database's own kind.
    fn dollar(&mut self) -> Result<(), StatementError> {
        if self.dialect == Dialect::Postgres {
            let after = &self.rest[1..];
            let tag = &after[..after.find(|c| !is_word(c)).unwrap_or(after.len())];
            let numbered = tag.starts_with(|c: char| c.is_ascii_digit());
            if !numbered && after[tag.len()..].starts_with('$') {
                let delimiter = &self.rest[..tag.len() + 2];
                let body = &self.rest[delimiter.len()..];
                let end = body
                    .find(delimiter)
                    .ok_or(StatementError::Unterminated("dollar-quoted string"))?;
                self.keep(end + 2 * delimiter.len());
                return Ok(());
            }
        }
        self.foreign_bind()
    }

    fn foreign_bind(&mut self) -> Result<(), StatementError> {
        let after = &self.rest[1..];
        let name = after.find(|c| !is_word(c)).unwrap_or(after.len());
        Err(StatementError::ForeignBind(self.rest[..=name].to_owned()))
    }

    fn colon(&mut self) -> Result<(), StatementError> {
        let after = &self.rest[1..];
        if after.starts_with(':') {
            self.keep(2);
            return Ok(());
        }
        let name = &after[..after.find(|c| !is_word(c)).unwrap_or(after.len())];
        if !name.starts_with(|c: char| is_word(c) && !c.is_ascii_digit()) {
            self.keep(1);
            return Ok(());
        }
        let known = Parameter::ALL.into_iter().find(|parameter| parameter.name() == name);
        let Some(parameter) = known else { return Err(unknown_parameter(name)) };
        self.flush();
        self.pieces.push(Piece::Parameter(parameter));
        self.rest = &after[name.len()..];
        Ok(())
    }

    /// A keyword, name or number. Taken whole, because a `$` inside one begins nothing.
    fn word(&mut self) -> Result<(), StatementError> {
        let end = self.rest.find(|c| !is_word(c) && c != '$').unwrap_or(self.rest.len());
        let escapes =
            self.dialect == Dialect::Postgres && self.rest[..end].eq_ignore_ascii_case("e");
        self.keep(end);
        if escapes && self.rest.starts_with('\'') { self.escaped_literal() } else { Ok(()) }
    }

    /// Moves `bytes` of the input into the current piece of text.
    fn keep(&mut self, bytes: usize) {
        let (kept, rest): (&'a str, &'a str) = self.rest.split_at(bytes);
        self.text.push_str(kept);
        self.rest = rest;
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.text)));
        }
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || !character.is_ascii()
}

fn unknown_parameter(name: &str) -> StatementError {
    let similarity = |parameter: &Parameter| strsim::jaro_winkler(parameter.name(), name);
    let nearest = Parameter::ALL
        .into_iter()
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
        .unwrap_or(Parameter::CustomerId);
    StatementError::UnknownParameter { name: name.to_owned(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{Postgres, Sqlite};
    use proptest::prelude::*;

    fn bound(sql: &str, dialect: Dialect) -> Result<String, StatementError> {
        Ok(Statement::parse(sql, dialect)?.render(|parameter| format!("<{}>", parameter.name())))
    }

    #[test]
    fn parameters_are_found_wherever_sql_allows_a_value() {
        for (sql, expected) in [
            ("select :customer_id", "select <customer_id>"),
            ("(:period,:campaign)", "(<period>,<campaign>)"),
            ("a=:period::text", "a=<period>::text"),
            (":period_start::date::text", "<period_start>::date::text"),
            ("a>=:period_start and b<:period_end;", "a>=<period_start> and b<<period_end>"),
            ("select :period -- done\n ; -- really", "select <period> -- done\n "),
            ("t.a$b = :campaign", "t.a$b = <campaign>"),
        ] {
            assert_eq!(bound(sql, Postgres).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn colons_that_begin_no_parameter_are_left_alone() {
        for sql in [
            "select ':period', 'it''s :period', E'\\':period', e'a''\\\\:period'",
            "select \":period\", \"a\"\":period\" from t",
            "select 1 -- :period ; 'open\n",
            "select /* :period /* nested */ :period ' */ 1",
            "select $$ :period ' $$, $tag$ $$ :period $tag$, $é$:period$é$",
            "select '1'::int, a[1:2], a[1 : n], x := 2, j ? 'k', 'e':: text, @ -5",
            "select name$1, tag$x$ from t",
        ] {
            assert_eq!(bound(sql, Postgres).as_deref(), Ok(sql), "{sql}");
        }
        for sql in
            ["select [a:period], `b:period``` from t", "select /* /* :period */ 1", "select 'a\\'"]
        {
            assert_eq!(bound(sql, Sqlite).as_deref(), Ok(sql), "{sql}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused_naming_the_nearest() {
        let error = bound("select :custmer_id", Postgres).unwrap_err();
        let StatementError::UnknownParameter { name, nearest } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), *nearest), ("custmer_id", Parameter::CustomerId));
        assert!(error.to_string().contains("did you mean :customer_id?"), "{error}");
        assert!(error.to_string().contains(":period_end"), "{error}");
        for sql in ["select :Period", "select :period2", "select a[1:n]", "select :é"] {
            assert!(matches!(bound(sql, Postgres), Err(StatementError::UnknownParameter { .. })));
        }
    }

    #[test]
    fn binds_of_the_databases_own_kind_are_refused() {
        let refused = |sql, dialect, bind: &str| {
            assert_eq!(bound(sql, dialect), Err(StatementError::ForeignBind(bind.to_owned())));
        };
        refused("select $1", Postgres, "$1");
        for bind in ["$1", "?", "?1", "@name", "$name"] {
            refused(&format!("select {bind}"), Sqlite, bind);
        }
    }

    #[test]
    fn exactly_one_statement_is_taken() {
        for sql in ["", "  \n", "-- nothing", ";", "/* */ ; "] {
            assert_eq!(bound(sql, Sqlite), Err(StatementError::Empty), "{sql:?}");
        }
        for sql in ["select 1; delete from t", "select 1;;", ";select 1"] {
            assert_eq!(bound(sql, Sqlite), Err(StatementError::SeveralStatements), "{sql:?}");
        }
        for (sql, dialect) in [
            ("select 'a", Postgres),
            ("select \"a\"\"", Sqlite),
            ("select /* /* */", Postgres),
            ("select $a$ $b$", Postgres),
            ("select E'\\'", Postgres),
            ("select [a", Sqlite),
        ] {
            assert!(matches!(bound(sql, dialect), Err(StatementError::Unterminated(_))), "{sql}");
        }
    }

    /// A piece of SQL, and what is to become of it.
    fn piece() -> impl Strategy<Value = (String, String)> {
        let same = |text: String| (text.clone(), text);
        prop_oneof![
            "[a-z_]{1,6}".prop_map(same),
            "[0-9]{1,4}".prop_map(same),
            "[-+*/=<>,().]".prop_map(same),
            "[^']{0,8}".prop_map(move |inner| same(format!("'{inner}'"))),
            "[^\"]{1,8}".prop_map(move |inner| same(format!("\"{inner}\""))),
            "[^*/]{0,8}".prop_map(move |inner| same(format!("/*{inner}*/"))),
            "[^\n]{0,8}".prop_map(move |inner| same(format!("--{inner}\n"))),
            "[^$]{0,8}".prop_map(move |inner| same(format!("$q${inner}$q$"))),
            "[^'\\\\]{0,8}".prop_map(move |inner| same(format!("E'\\'{inner}\\\\'"))),
            Just(same("::text".to_owned())),
            (0..7_usize).prop_map(|index| {
                let parameter = Parameter::ALL[index];
                (parameter.to_string(), format!("<{}>", parameter.name()))
            }),
        ]
    }

    proptest! {
        #[test]
        fn only_parameters_change(pieces in prop::collection::vec(piece(), 1..12)) {
            let join = |part: fn(&(String, String)) -> &str| {
                let parts: Vec<&str> = pieces.iter().map(part).collect();
                format!("select {}", parts.join(" "))
            };
            prop_assert_eq!(bound(&join(|p| &p.0), Postgres), Ok(join(|p| &p.1)));
        }

        #[test]
        fn any_text_is_refused_or_kept_as_it_is(sql in "(?s)[a-e:'\"$?@;\\[\\]/*\n `\\\\é-]{0,40}") {
            for dialect in [Postgres, Sqlite] {
                if let Ok(statement) = Statement::parse(&sql, dialect) {
                    let kept = statement.render(|parameter| parameter.to_string());
                    prop_assert!(sql.starts_with(&kept));
                }
            }
        }
    }
}
