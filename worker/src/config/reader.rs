//! Reading TOML tables key by key: each table says which keys it has by asking for them, so that
//! what it did not ask for is unknown, and every problem carries its line. All problems are
//! collected; the values read beside them are then thrown away.

use super::duration;
use super::error::Problem;
use axum::http::HeaderName;
use digest_activities::webhook::Topic;
use jiff::SignedDuration;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table};

/// Keys and tables by their path, and the lines (from 1) they are on.
pub(super) type Lines = BTreeMap<String, usize>;

/// One file being read.
pub(super) struct Reader<'a> {
    text: &'a str,
    problems: RefCell<Vec<Problem>>,
    lines: RefCell<Lines>,
}

/// One table of the file, present or not.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    path: String,
    table: Option<&'a DeTable<'a>>,
    known: Vec<String>,
}

/// A type that a key's value can have.
pub(super) trait Value: Sized {
    /// # Errors
    /// What is wrong and what to write instead.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, problems: RefCell::default(), lines: RefCell::default() }
    }

    /// The file's top level.
    pub(super) fn root(&'a self, table: &'a DeTable<'a>) -> Section<'a> {
        Section { reader: self, path: String::new(), table: Some(table), known: Vec::new() }
    }

    /// The problem of a text that is not TOML.
    pub(super) fn syntax(&self, error: &toml::de::Error) -> Problem {
        Problem {
            line: error.span().map(|span| self.line(span.start)),
            key: String::new(),
            message: format!("this is not TOML: {}", error.message().replace('\n', " ")),
        }
    }

    /// Notes that the key or table at `path` is wrong. Where it is absent, its table is pointed at.
    pub(super) fn refuse(&self, path: &str, message: impl Into<String>) {
        let problem = problem(&self.lines.borrow(), path, message);
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// The lines of everything read, and all problems in the order of the file.
    pub(super) fn finish(self) -> (Lines, Vec<Problem>) {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        (self.lines.into_inner(), problems)
    }

    fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// A problem with `path`, at its line or at the line of the nearest table around it.
pub(super) fn problem(lines: &Lines, path: &str, message: impl Into<String>) -> Problem {
    let mut at = path;
    let line = loop {
        if let Some(line) = lines.get(at) {
            break Some(*line);
        }
        match at.rsplit_once('.') {
            Some((parent, _)) => at = parent,
            None => break None,
        }
    };
    Problem { line, key: path.to_owned(), message: message.into() }
}

impl<'a> Section<'a> {
    /// The table `key` inside this one.
    pub(super) fn table(&mut self, key: &str) -> Section<'a> {
        let path = self.path_of(key);
        let table = match self.find(key).map(Spanned::get_ref) {
            None => None,
            Some(DeValue::Table(table)) => Some(table),
            Some(other) => {
                let found = describe(other);
                self.reader.refuse(&path, format!("this must be a table, not {found}"));
                None
            }
        };
        Section { reader: self.reader, path, table, known: Vec::new() }
    }

    /// What `read` makes of the table `key`, in which nothing else is known.
    pub(super) fn with<T>(&mut self, key: &str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        let mut section = self.table(key);
        let value = read(&mut section);
        section.finish();
        value
    }

    /// Whether the file has the key. It counts as known from here on.
    pub(super) fn has(&mut self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`, if it is there and can be read.
    pub(super) fn optional<T: Value>(&mut self, key: &str) -> Option<T> {
        match T::read(self.find(key)?.get_ref()) {
            Ok(value) => Some(value),
            Err(message) => {
                self.refuse(key, message);
                None
            }
        }
    }

    /// The value of `key`, else `default`.
    pub(super) fn or<T: Value>(&mut self, key: &str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// The value of `key`; `why` says what it is needed for where it is missing.
    pub(super) fn required<T: Value + Default>(&mut self, key: &str, why: &str) -> T {
        if !self.has(key) {
            self.refuse(key, format!("this is missing; {why}"));
        }
        self.optional(key).unwrap_or_default()
    }

    /// A number within `range`.
    pub(super) fn within<T>(&mut self, key: &str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Value + PartialOrd + std::fmt::Display,
    {
        let value = self.or(key, default);
        if !range.contains(&value) {
            let (from, to) = range.into_inner();
            self.refuse(key, format!("{value} is not between {from} and {to}"));
        }
        value
    }

    /// One of the named values.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, all: &[(&str, T)]) -> Option<T> {
        let text: String = self.optional(key)?;
        let found = all.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let hint = nearest(&text, &names);
            self.refuse(key, format!("{text:?} is none of {}{hint}", names.join(", ")));
        }
        found.map(|(_, value)| *value)
    }

    /// Notes that the value of `key` is wrong.
    pub(super) fn refuse(&self, key: &str, message: impl Into<String>) {
        self.reader.refuse(&self.path_of(key), message);
    }

    /// Refuses every key that was not asked for.
    pub(super) fn finish(self) {
        let Some(table) = self.table else { return };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if self.known.iter().any(|known| known == name) {
                continue;
            }
            let path = self.path_of(name);
            self.reader.lines.borrow_mut().insert(path.clone(), self.reader.line(key.span().start));
            let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
            let what = if value.get_ref().is_table() { "table" } else { "key" };
            let hint = nearest(name, &known);
            self.reader.refuse(&path, format!("there is no such {what}{hint}"));
        }
    }

    /// The table as plain TOML, for a reader of its own.
    pub(super) fn raw(&self) -> Table {
        self.table.map_or_else(Table::new, |table| {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value))).collect()
        })
    }

    fn find(&mut self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        if !self.known.iter().any(|known| known == key) {
            self.known.push(key.to_owned());
        }
        let (spanned, value) = self.table?.get_key_value(key)?;
        let line = self.reader.line(spanned.span().start);
        self.reader.lines.borrow_mut().insert(self.path_of(key), line);
        Some(value)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl Value for String {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| expected("a text in quotes", value))?;
        if text.trim().is_empty() {
            return Err("this must not be empty; leave the line out instead".to_owned());
        }
        Ok(text.to_owned())
    }
}

impl Value for SignedDuration {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| expected("a duration such as \"30s\"", value))?;
        duration::parse(text)
    }
}

impl Value for u32 {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let number = value.as_integer().ok_or_else(|| expected("a whole number", value))?;
        Self::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| format!("{} is not between 0 and {}", number.as_str(), Self::MAX))
    }
}

impl Value for bool {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| expected("true or false", value))
    }
}

impl Value for f64 {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) => {
                i32::from_str_radix(number.as_str(), number.radix()).ok().map(Self::from)
            }
            _ => None,
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| expected("a number", value))
    }
}

impl Value for SocketAddr {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = String::read(value)?;
        text.parse().map_err(|_| {
            format!("{text:?} is not an address and port; write one such as \"127.0.0.1:8080\"")
        })
    }
}

impl Value for HeaderName {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = String::read(value)?;
        text.parse().map_err(|_| {
            format!("{text:?} is not the name of a header; write one such as \"X-Forwarded-User\"")
        })
    }
}

impl Value for Vec<IpAddr> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let wanted = "a list of addresses, such as [\"10.0.0.5\"]";
        let items = value.as_array().ok_or_else(|| expected(wanted, value))?;
        if items.is_empty() {
            return Err("this must name an address; leave the line out instead".to_owned());
        }
        let address = |text: String| {
            text.parse().map_err(|_| format!("{text:?} is not an address such as \"10.0.0.5\""))
        };
        items.iter().map(|item| String::read(item.get_ref()).and_then(address)).collect()
    }
}

impl Value for Vec<Topic> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let wanted = "a list of texts, such as [\"arn:aws:sns:eu-west-1:123456789012:digest\"]";
        let items = value.as_array().ok_or_else(|| expected(wanted, value))?;
        if items.is_empty() {
            return Err("this must name a topic; leave the line out instead".to_owned());
        }
        let topic = |text: String| Topic::parse(&text).map_err(|error| error.to_string());
        items.iter().map(|item| String::read(item.get_ref()).and_then(topic)).collect()
    }
}

fn expected(what: &str, value: &DeValue<'_>) -> String {
    format!("this must be {what}, not {}", describe(value))
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a text".to_owned(),
        DeValue::Integer(number) => format!("the number {}", number.as_str()),
        DeValue::Float(number) => format!("the number {}", number.as_str()),
        other => match other.type_str() {
            kind @ "array" => format!("an {kind}"),
            kind => format!("a {kind}"),
        },
    }
}

/// The known name most like `name`, as the end of a sentence; all of them where it is not like any.
pub(super) fn nearest(name: &str, known: &[&str]) -> String {
    let best = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), *candidate))
        .min_by_key(|(distance, _)| *distance);
    match best {
        None => String::new(),
        Some((0..=2, candidate)) => format!("; did you mean {candidate}?"),
        Some((_, candidate)) if known.len() > 20 => format!("; the nearest is {candidate}"),
        Some((_, candidate)) => {
            format!("; the nearest is {candidate}, of {}", known.join(", "))
        }
    }
}

fn plain(value: &Spanned<DeValue<'_>>) -> toml::Value {
    match value.get_ref() {
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Integer(number) => toml::Value::Integer(
            i64::from_str_radix(number.as_str(), number.radix()).unwrap_or(i64::MAX),
        ),
        DeValue::Float(number) => toml::Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => toml::Value::Boolean(*flag),
        DeValue::Datetime(time) => toml::Value::Datetime(*time),
        DeValue::Array(items) => toml::Value::Array(items.iter().map(plain).collect()),
        DeValue::Table(table) => toml::Value::Table(
            table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value))).collect(),
        ),
    }
}
