//! Finds the parameters in a statement's text.
//!
//! The scanner knows just enough of SQL's lexical rules (PostgreSQL documentation 4.1, SQLite's
//! "SQL As Understood By SQLite", MySQL's reference manual 11.1 and 11.7) to tell a parameter from a
//! colon in a string literal, a quoted identifier, a comment, a dollar-quoted string or a `::cast`.
//! It understands no grammar: that is the database's work.
//!
//! Two of MySQL's SQL modes change where a quoted text ends: `NO_BACKSLASH_ESCAPES`, and
//! `ANSI_QUOTES` for `"…"`. The mode is the server's and not changed, so that a statement means what
//! it means in the user's own client; a text that would end elsewhere under another mode is refused.

use super::statement::{Dialect, Parameter, Piece, StatementError};

/// Cuts one text at its parameters.
pub(super) struct Scanner<'a> {
    rest: &'a str,
    dialect: Dialect,
    text: String,
    pieces: Vec<Piece>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(sql: &'a str, dialect: Dialect) -> Self {
        Self { rest: sql, dialect, text: String::new(), pieces: Vec::new() }
    }

    /// The pieces of exactly one statement.
    pub(super) fn scan(mut self) -> Result<Vec<Piece>, StatementError> {
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
        Ok(self.pieces)
    }

    /// Takes one token that is neither blank nor a comment.
    fn token(&mut self, next: char) -> Result<(), StatementError> {
        let (sqlite, mysql) = (self.dialect == Dialect::Sqlite, self.dialect == Dialect::Mysql);
        match next {
            '\'' => self.quoted('\'', "string literal"),
            '"' if mysql => self.quoted('"', "quoted text"),
            '"' => self.quoted('"', "quoted identifier"),
            '`' if sqlite || mysql => self.quoted('`', "quoted identifier"),
            '[' if sqlite => self.quoted(']', "quoted identifier"),
            '$' if !mysql => self.dollar(),
            '?' if sqlite || mysql => self.foreign_bind(),
            '@' if sqlite => self.foreign_bind(),
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
        if self.line_comment() {
            self.keep(self.rest.find('\n').unwrap_or(self.rest.len()));
            return Ok(true);
        }
        if !self.rest.starts_with("/*") {
            return Ok(false);
        }
        let executable = ["/*!", "/*M!"].iter().any(|opening| self.rest.starts_with(opening));
        if executable && self.dialect == Dialect::Mysql {
            return Err(StatementError::ExecutableComment);
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

    /// Whether a comment to the end of the line begins here. MySQL wants a blank behind the dashes,
    /// since `5--3` is arithmetic, and knows `#` as well.
    fn line_comment(&self) -> bool {
        let dashes = self.rest.strip_prefix("--");
        match self.dialect {
            Dialect::Mysql => {
                let blank = |c: char| c.is_ascii_whitespace() || c.is_ascii_control();
                self.rest.starts_with('#')
                    || dashes.is_some_and(|after| after.is_empty() || after.starts_with(blank))
            }
            Dialect::Sqlite | Dialect::Postgres => dashes.is_some(),
        }
    }

    /// A token that begins here and runs to `close`; a doubled `close` stands for itself.
    fn quoted(&mut self, close: char, what: &'static str) -> Result<(), StatementError> {
        let mut at = 1;
        loop {
            let end = self.rest[at..].find(close).ok_or(StatementError::Unterminated(what))?;
            let before = self.rest[at..at + end].bytes().rev();
            if self.dialect == Dialect::Mysql
                && close != '`'
                && before.take_while(|byte| *byte == b'\\').count() % 2 == 1
            {
                return Err(StatementError::AmbiguousQuote);
            }
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
    use super::super::statement::Statement;
    use super::*;
    use Dialect::{Mysql, Postgres, Sqlite};
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
        for sql in [
            "select 1 # :period ' \n, 2 -- :period ' \n, 3 --",
            "select \"it's :period\", `a\\` , `b``:period`, 'a\\\\', '\\n''\\%' from t",
            "select @last := 1, @@time_zone, a->>'$.x', b$c, $d, 1 /* :period /* */",
        ] {
            assert_eq!(bound(sql, Mysql).as_deref(), Ok(sql), "{sql}");
        }
        assert_eq!(bound("select 5--:period", Mysql).as_deref(), Ok("select 5--<period>"));
    }

    #[test]
    fn what_mysql_reads_one_way_or_another_is_refused() {
        for sql in
            ["select 'it\\'s'", "select \"\\\"\"", "select 'a\\', ':period'", "select '\\\\\\''"]
        {
            assert_eq!(bound(sql, Mysql), Err(StatementError::AmbiguousQuote), "{sql}");
        }
        for sql in ["select 1 /*!50000 , :period */", "select /*M!100100 2, */ 1"] {
            assert_eq!(bound(sql, Mysql), Err(StatementError::ExecutableComment), "{sql}");
            assert!(bound(sql, Sqlite).is_ok(), "{sql}");
        }
        assert!(bound("select /*+ no_merge(c) */ 1", Mysql).is_ok());
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
        fn refused(sql: &str, dialect: Dialect, bind: &str) {
            assert_eq!(bound(sql, dialect), Err(StatementError::ForeignBind(bind.to_owned())));
        }
        refused("select $1", Postgres, "$1");
        for bind in ["$1", "?", "?1", "@name", "$name"] {
            refused(&format!("select {bind}"), Sqlite, bind);
        }
        refused("select ?", Mysql, "?");
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
        fn any_text_is_refused_or_kept_as_it_is(sql in "(?s)[a-e:'\"$?@#!M;\\[\\]/*\n `\\\\é-]{0,40}") {
            for dialect in [Postgres, Sqlite, Mysql] {
                if let Ok(statement) = Statement::parse(&sql, dialect) {
                    let kept = statement.render(|parameter| parameter.to_string());
                    prop_assert!(sql.starts_with(&kept));
                }
            }
        }
    }
}
