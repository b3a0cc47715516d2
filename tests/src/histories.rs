//! The recorded histories in `tests/histories`: every shape that a workflow of digestd leaves in the
//! engine, replayed against today's workflow code by the test target `replay` and recorded by the
//! tests `histories` of the target `end_to_end`.
//!
//! A file is named after its shape. One that a release has recorded is kept when the code changes:
//! it gets the release's version appended (`customer-happy-0.1.0.binpb`), and the shape is recorded
//! anew beside it.

use anyhow::{Context, Result};
use data_encoding::BASE64;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use temporalio_common::protos::temporal::api::history::v1::History;

/// How a history's file ends: protobuf, `temporal.api.history.v1.History`.
const EXTENSION: &str = "binpb";

/// Every shape with what happened in it. `open` in a name means that the workflow still waited.
pub const SHAPES: &[(&str, &str)] = &[
    ("customer-answer-uncommitted", "the ledger was away when the provider said yes"),
    (
        "customer-cancel-requested",
        "its cancellation was requested in the engine while it was unknown",
    ),
    ("customer-cancelled", "its run was cancelled while it waited for its next attempt"),
    ("customer-cleanup-given-up", "removing its rows failed until the policy gave up"),
    ("customer-cleanup-retried", "a cleanup that was given up, taken up again by a person"),
    ("customer-continued-after", "what a long history was continued as"),
    ("customer-continued-before", "a history that has grown long"),
    ("customer-dead-rejected", "the provider refused the message for good"),
    ("customer-dead-replayed", "a dead letter that a person had sent again"),
    (
        "customer-evidence-forged",
        "the signal `evidence` without the proof that an execution sent it",
    ),
    ("customer-evidence-signalled", "an answer that reached the workflow by the signal `evidence`"),
    ("customer-happy", "sent and cleaned in one task"),
    ("customer-held-resumed", "wrong credentials held its run until a person resumed it"),
    ("customer-late-answer", "the answer came after the time-out and before the lease's end"),
    ("customer-looked-up-hit", "unknown, and the provider knew it"),
    ("customer-looked-up-miss", "unknown, a miss that counted, and sent again"),
    ("customer-malformed-signals", "nonsense in every signal while it was unknown"),
    ("customer-no-answer", "an activity that panicked, asked again"),
    ("customer-nothing-to-send", "its digest had no rows"),
    ("customer-open-held", "still waits under a hold"),
    ("customer-open-retrying", "still waits for its next attempt"),
    ("customer-open-unknown", "still waits for an answer or a person"),
    ("customer-overloaded", "the provider was overloaded, then took it"),
    ("customer-paced", "waited for its place in the rate"),
    ("customer-provider-gone", "unknown, and its provider is configured no more"),
    ("customer-rate-limited", "the provider named a wait, then took it"),
    ("customer-refused-recipient", "the address does not exist"),
    ("customer-replayed-under-contract", "unknown, and the same request returned the original"),
    ("customer-retried-transport", "the connection was reset before the hand-over, then sent"),
    ("customer-stale", "too late to be of use"),
    ("customer-suppressed", "consent was withdrawn before the attempt"),
    ("customer-swept-up", "started again by the sweep after its workflow was terminated"),
    ("customer-unknown-abandoned", "unknown, and a person gave it up"),
    ("customer-unknown-delivered", "unknown, and a person found it delivered"),
    ("customer-unknown-expired", "unknown until the retention rule ended it"),
    ("customer-unknown-not-delivered", "unknown, found not delivered, and sent again"),
    ("customer-worker-killed", "its worker was killed after the provider took it"),
    ("page-child-exists", "one of its operations had a workflow already"),
    ("page-happy", "started its operations and ended"),
    ("run-cancel-requested", "its cancellation was requested in the engine: a hold, then resumed"),
    ("run-cancelled", "a person cancelled it"),
    ("run-closed-before", "started again after it was closed"),
    ("run-continued-after", "what a long history was continued as"),
    ("run-continued-before", "a history that has grown long"),
    ("run-happy", "frozen, dispatched, watched, closed"),
    ("run-held-resumed", "held and resumed by signals before it dispatched"),
    ("run-late-approved", "started too late, and resumed by a person"),
    ("run-open-held", "still waits for a person to resume it"),
    ("run-open-watching", "still watches operations that are not at rest"),
    ("run-scheduled", "started by a tick"),
    ("run-selection-questioned", "its selection was empty, and a person resumed it"),
    ("weekly-already-running", "a tick whose run was started before"),
    ("weekly-happy", "a tick that started the run of its period"),
    ("weekly-refused", "started without a scheduled instant"),
];

/// The folder of the recorded histories.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("histories")
}

/// The name of the shape that a file's name stands for: without the version of a release.
#[must_use]
pub fn shape_of(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((shape, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => shape,
        _ => name,
    }
}

/// Every recorded history by its file's name without the ending.
///
/// # Errors
/// A folder or file that can't be read, or a file that is no history.
pub fn all() -> Result<BTreeMap<String, History>> {
    let folder = folder();
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.insert(name, read(&path)?);
    }
    Ok(found)
}

/// The recorded history of a shape, if there is one.
///
/// # Errors
/// As [`all`].
pub fn recorded(shape: &str) -> Result<Option<History>> {
    let path = path(shape);
    if path.exists() { read(&path).map(Some) } else { Ok(None) }
}

/// Records the history of a shape in place of an earlier one.
///
/// # Errors
/// When the file can't be written.
pub fn record(shape: &str, history: &History) -> Result<()> {
    let path = path(shape);
    std::fs::create_dir_all(folder())?;
    std::fs::write(&path, history.encode_to_vec())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn path(shape: &str) -> PathBuf {
    folder().join(shape).with_extension(EXTENSION)
}

fn read(path: &Path) -> Result<History> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    History::decode(bytes.as_slice()).with_context(|| {
        format!("{} is not a history; {} holds nothing else", path.display(), folder().display())
    })
}

/// Every text of a history, those inside payloads too.
///
/// # Errors
/// When it does not read as JSON, which the protocol's types always do.
pub fn texts(history: &History) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    collect(&serde_json::to_value(&history.events)?, &mut texts);
    Ok(texts)
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(fields) => {
            if let (Some(Value::String(data)), true) =
                (fields.get("data"), fields.contains_key("metadata"))
            {
                let data = BASE64.decode(data.as_bytes()).unwrap_or_default();
                texts.push(String::from_utf8_lossy(&data).into_owned());
            }
            fields.values().for_each(|value| collect(value, texts));
        }
        _ => {}
    }
}

/// The texts of a history in which an address, a name or content of the tests' shops shows.
///
/// # Errors
/// As [`texts`].
pub fn private(history: &History) -> Result<Vec<String>> {
    let shows = |text: &String| {
        // A worker names itself by its process.
        let address = text.contains('@') && !text.starts_with("digestd@");
        let content = ["shop.example", "Hello ", "your week", "Thing ", "\"19.90\""];
        address || content.iter().any(|content| text.contains(content))
    };
    Ok(texts(history)?.into_iter().filter(shows).collect())
}
