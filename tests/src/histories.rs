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

/// One shape of a workflow's history.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What its file is named.
    pub name: &'static str,
    /// What happened.
    pub what: &'static str,
    /// What no such history lacks: part of a text in it, or the name of an event's type.
    pub shows: &'static str,
}

const fn shape(name: &'static str, what: &'static str, shows: &'static str) -> Shape {
    Shape { name, what, shows }
}

/// Every shape. `open` in a name means that the workflow still waited.
pub const SHAPES: &[Shape] = &[
    shape(
        "customer-answer-uncommitted",
        "the ledger was away when the provider said yes",
        r#""uncommitted":"#,
    ),
    shape(
        "customer-cancel-requested",
        "its cancellation was requested in the engine while it was unknown",
        "EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED",
    ),
    shape(
        "customer-cancelled",
        "its run was cancelled while it waited for its next attempt",
        r#"{"state":"suppressed","class":"suppressed","attempts":1}"#,
    ),
    shape(
        "customer-cleanup-given-up",
        "removing its rows failed until the policy gave up",
        r#"{"state":"sent","attempts":1}"#,
    ),
    shape(
        "customer-cleanup-retried",
        "a cleanup that was given up, taken up again by a person",
        r#"{"state":"cleaned","attempts":1}"#,
    ),
    shape(
        "customer-continued-after",
        "what a long history was continued as",
        r#"{"state":"cleaned","attempts":1}"#,
    ),
    shape(
        "customer-continued-before",
        "a history that has grown long",
        "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
    ),
    shape(
        "customer-dead-rejected",
        "the provider refused the message for good",
        r#"{"state":"dead","class":"rejected","attempts":1}"#,
    ),
    shape(
        "customer-dead-replayed",
        "a dead letter that a person had sent again",
        r#""generation":2"#,
    ),
    shape(
        "customer-evidence-forged",
        "the signal `evidence` without the proof that an execution sent it",
        r#""note":"unproven""#,
    ),
    shape(
        "customer-evidence-signalled",
        "an answer that reached the workflow by the signal `evidence`",
        r#""proof":"#,
    ),
    shape("customer-happy", "sent and cleaned in one task", r#"{"state":"cleaned","attempts":1}"#),
    shape(
        "customer-held-resumed",
        "wrong credentials held its run until a person resumed it",
        r#""pause":"held""#,
    ),
    shape(
        "customer-late-answer",
        "the answer came after the time-out and before the lease's end",
        "EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED",
    ),
    shape("customer-looked-up-hit", "unknown, and the provider knew it", "Gates::reconcile"),
    shape(
        "customer-looked-up-miss",
        "unknown, a miss that counted, and sent again",
        r#"{"state":"cleaned","attempts":2}"#,
    ),
    shape(
        "customer-malformed-signals",
        "nonsense in every signal while it was unknown",
        r#""nonsense""#,
    ),
    shape("customer-no-answer", "an activity that panicked, asked again", "the activity panicked"),
    shape(
        "customer-nothing-to-send",
        "its digest had no rows",
        r#"{"state":"suppressed","class":"suppressed","attempts":1}"#,
    ),
    shape("customer-open-held", "still waits under a hold", r#""pause":"held""#),
    shape(
        "customer-open-retrying",
        "still waits for its next attempt",
        r#""state":"retrying","class":"rate_limited""#,
    ),
    shape(
        "customer-open-unknown",
        "still waits for an answer or a person",
        r#""state":"unknown","class":"ambiguous""#,
    ),
    shape(
        "customer-overloaded",
        "the provider was overloaded, then took it",
        r#""state":"retrying","class":"overloaded""#,
    ),
    shape("customer-paced", "waited for its place in the rate", r#""pause":{"paced":"#),
    shape(
        "customer-provider-gone",
        "unknown, and its provider is configured no more",
        r#""state":"unknown","class":"ambiguous""#,
    ),
    shape(
        "customer-rate-limited",
        "the provider named a wait, then took it",
        r#""state":"retrying","class":"rate_limited""#,
    ),
    shape(
        "customer-refused-recipient",
        "the address does not exist",
        r#"{"state":"dead","class":"recipient","attempts":1}"#,
    ),
    shape(
        "customer-replayed-under-contract",
        "unknown, and the same request returned the original",
        r#"{"state":"cleaned","attempts":2}"#,
    ),
    shape(
        "customer-retried-transport",
        "the connection was reset before the hand-over, then sent",
        r#""state":"retrying","class":"transport""#,
    ),
    shape(
        "customer-stale",
        "too late to be of use",
        r#"{"state":"dead","class":"stale","attempts":0}"#,
    ),
    shape(
        "customer-suppressed",
        "consent was withdrawn before the attempt",
        r#"{"state":"suppressed","class":"suppressed","attempts":0}"#,
    ),
    shape(
        "customer-swept-up",
        "started again by the sweep after its workflow was terminated",
        r#""state":"unknown","class":"ambiguous""#,
    ),
    shape(
        "customer-unknown-abandoned",
        "unknown, and a person gave it up",
        r#"{"state":"expired","class":"ambiguous","attempts":1}"#,
    ),
    shape(
        "customer-unknown-delivered",
        "unknown, and a person found it delivered",
        r#""verdict":"delivered""#,
    ),
    shape(
        "customer-unknown-expired",
        "unknown until the retention rule ended it",
        r#"{"state":"expired","class":"ambiguous","attempts":1}"#,
    ),
    shape(
        "customer-unknown-not-delivered",
        "unknown, found not delivered, and sent again",
        r#""verdict":"not_delivered""#,
    ),
    shape(
        "customer-worker-killed",
        "its worker was killed after the provider took it",
        "EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT",
    ),
    shape("page-child-exists", "one of its operations had a workflow already", r#""already":1"#),
    shape(
        "page-happy",
        "started its operations and ended",
        r#"{"started":3,"already":0,"left":0}"#,
    ),
    shape(
        "run-cancel-requested",
        "its cancellation was requested in the engine: a hold, then resumed",
        r#""held":"cancellation was requested"#,
    ),
    shape("run-cancelled", "a person cancelled it", r#""closed_here":true"#),
    shape("run-closed-before", "started again after it was closed", r#""closed_here":false"#),
    shape("run-continued-after", "what a long history was continued as", r#""closed_here":true"#),
    shape(
        "run-continued-before",
        "a history that has grown long",
        "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
    ),
    shape("run-happy", "frozen, dispatched, watched, closed", r#""closed_here":true"#),
    shape("run-held-resumed", "held and resumed by signals before it dispatched", "Gates::resume"),
    shape(
        "run-late-approved",
        "started too late, and resumed by a person",
        r#""held":"it started later than late_start"#,
    ),
    shape("run-open-held", "still waits for a person to resume it", r#""held":"configuration"#),
    shape("run-open-watching", "still watches operations that are not at rest", "Gates::watch"),
    shape("run-scheduled", "started by a tick", r#""tick":"#),
    shape(
        "run-selection-questioned",
        "its selection was empty, and a person resumed it",
        r#""held":"the selection is empty"#,
    ),
    shape("weekly-already-running", "a tick whose run was started before", r#""started":false"#),
    shape("weekly-happy", "a tick that started the run of its period", r#""started":true"#),
    shape(
        "weekly-refused",
        "started without a scheduled instant",
        "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED",
    ),
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

/// Whether a history shows what its shape says.
///
/// # Errors
/// As [`texts`].
pub fn is_of(shape: &Shape, history: &History) -> Result<bool> {
    let types = history.events.iter().map(|event| event.event_type().as_str_name().to_owned());
    Ok(types.chain(texts(history)?).any(|text| text.contains(shape.shows)))
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
