//! The operation keys that a command is about: from its line, from a file, or from standard input.

use crate::cli::{UsageError, key};
use anyhow::Context;
use digest_workflows::operation::{OperationKey, Period};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file of keys is not larger than this: a key has 250 bytes at most, and there is a bound on
/// their number.
const BYTES_MAX: u64 = 16_000_000;
/// At most this many malformed lines, or foreign keys, are named.
const NAMED_MAX: usize = 5;

/// Whether `from` is standard input.
#[must_use]
pub fn is_stdin(from: Option<&Path>) -> bool {
    from.is_some_and(|path| path == Path::new("-"))
}

/// The keys in `given` and in the file `from` (`-`: standard input), each once, in order: at most
/// `max`, at least one. Nothing is half read: one malformed line refuses the whole file.
///
/// # Errors
/// [`UsageError`] when a line is malformed, or there are too many keys or none; what the system says
/// when the file cannot be read.
pub fn gather(
    given: &[OperationKey],
    from: Option<&Path>,
    max: u32,
) -> anyhow::Result<Vec<OperationKey>> {
    let mut keys = given.to_vec();
    if let Some(path) = from {
        keys.extend(parse(&read(path)?, &name(path))?);
    }
    let mut seen = HashSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    if keys.is_empty() {
        return Err(UsageError(
            "there is no key; write operation keys or Message-IDs, one a line".into(),
        )
        .into());
    }
    if keys.len() > max as usize {
        return Err(UsageError(format!(
            "{} keys are more than [replay] max_keys = {max} allows one command; nothing was done: \
             split them, or raise max_keys",
            keys.len()
        ))
        .into());
    }
    Ok(keys)
}

/// Refuses keys of another campaign, or of another period where there is one.
///
/// # Errors
/// [`UsageError`] that names them.
pub fn must_be_of(
    keys: &[OperationKey],
    campaign: &str,
    period: Option<Period>,
) -> Result<(), UsageError> {
    let foreign: Vec<String> = keys
        .iter()
        .filter(|key| key.campaign() != campaign || period.is_some_and(|p| p != key.period()))
        .map(ToString::to_string)
        .collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let of = period.map_or_else(String::new, |period| format!(" in {period}"));
    Err(UsageError(format!(
        "not of the campaign {campaign:?}{of}, so nothing was done: {}",
        some(&foreign)
    )))
}

/// Refuses keys that no verdict can be about: of another campaign. A canary in doubt is resolved like
/// any other message.
///
/// # Errors
/// [`UsageError`] that names them.
pub fn may_be_resolved(keys: &[OperationKey], campaign: &str) -> Result<(), UsageError> {
    let others: Vec<_> = keys.iter().filter(|key| !key.is_canary_of(campaign)).cloned().collect();
    must_be_of(&others, campaign, None)
}

/// The first of `texts`, and how many more there are.
fn some(texts: &[String]) -> String {
    let named = &texts[..texts.len().min(NAMED_MAX)];
    let more = texts.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

fn name(path: &Path) -> String {
    if is_stdin(Some(path)) { "standard input".to_owned() } else { path.display().to_string() }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = if is_stdin(Some(path)) {
        io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    let name = name(path);
    read.map_err(|error| UsageError(format!("{name} cannot be read: {error}")))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(UsageError(format!("{name} is too large to be a list of keys")).into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| UsageError(format!("{name} is not text; write one key a line")))
        .context("nothing was done")?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// Reads `text`. A malformed line is named by its number alone, since it may hold anything.
fn parse(text: &str, name: &str) -> Result<Vec<OperationKey>, UsageError> {
    let mut keys = Vec::new();
    let mut malformed = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match key(line) {
            Ok(key) => keys.push(key),
            Err(_) => malformed.push(format!("line {}", index + 1)),
        }
    }
    if malformed.is_empty() {
        return Ok(keys);
    }
    Err(UsageError(format!(
        "{name} holds what is neither an operation key nor the Message-ID of one, so nothing was \
         done: {}; a key looks like digest:2026-W42:customer-1842",
        some(&malformed)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_message_ids_are_read_and_the_rest_is_named_by_line() {
        let text =
            "# found in the log\r\n\n digest:2026-W42:a \n<digest.2026-W42.b@shop.example>\n";
        let keys: Vec<String> =
            parse(text, "keys").unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["digest:2026-W42:a", "digest:2026-W42:b"]);
        let error = parse("digest:2026-W42:a\nann@shop.example\n\nx", "keys").unwrap_err().0;
        assert!(error.contains("line 2, line 4;"), "{error}");
        assert!(!error.contains("ann"), "{error}");
    }

    #[test]
    fn a_key_counts_once_and_the_bound_is_kept() {
        let keys: Vec<OperationKey> =
            ["digest:2026-W42:a", "digest:2026-W42:a", "digest:2026-W42:b"]
                .iter()
                .map(|text| OperationKey::parse(text).unwrap())
                .collect();
        assert_eq!(gather(&keys, None, 2).unwrap().len(), 2);
        let error = gather(&keys, None, 1).unwrap_err().to_string();
        assert!(error.starts_with("2 keys are more than [replay] max_keys = 1"), "{error}");
        assert!(gather(&[], None, 1).is_err());
    }

    #[test]
    fn a_canary_may_be_resolved_and_not_replayed() {
        let keys = ["digest:2026-W42:a", "digest-canary:2026-W42:a"]
            .map(|text| OperationKey::parse(text).unwrap());
        assert!(may_be_resolved(&keys, "digest").is_ok());
        assert!(must_be_of(&keys, "digest", None).is_err());
        assert!(may_be_resolved(&keys, "reminder").is_err());
    }

    #[test]
    fn foreign_keys_are_named() {
        let keys = [OperationKey::parse("digest:2026-W42:a").unwrap()];
        let week = |text| Some(Period::parse(text).unwrap());
        assert!(must_be_of(&keys, "digest", None).is_ok());
        assert!(must_be_of(&keys, "digest", week("2026-W42")).is_ok());
        for (campaign, period) in [("reminder", None), ("digest", week("2026-W41"))] {
            let error = must_be_of(&keys, campaign, period).unwrap_err().0;
            assert!(error.ends_with("digest:2026-W42:a"), "{error}");
        }
    }
}
