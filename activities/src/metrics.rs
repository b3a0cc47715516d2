//! What this process has done, counted where the ledger has recorded it: attempts, retries, doubts,
//! cleanups, webhooks. How things stand is not here but in the ledger's [figures](crate::ledger::Figures).
//!
//! Every label has a small, fixed set of values: never a key, a customer, an address or a provider's
//! words. Series whose labels are known before exist from the start, as zero.

use crate::ledger::{Answer, Begun, Recorded};
use crate::provider::Reply;
use digest_workflows::operation::{
    CannotBegin, Change, Event, FailureClass, Finding, Note, OperationKey, Outcome, State,
};
use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use prometheus::{Error, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use std::collections::HashMap;
use std::time::Duration;

/// Seconds from the hand-over to the answer; the last ones are late answers.
const SEND_BUCKETS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];
/// Seconds that an operation waits for its first attempt, up to half a day.
const CLAIM_BUCKETS: [f64; 12] =
    [0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0];
/// The label `class` of an attempt that was accepted.
const NO_CLASS: &str = "none";
const NO_LABELS: &[&str] = &[];

/// The counters of this process.
pub struct Metrics {
    registry: Registry,
    campaign: String,
    provider: String,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    claim: HistogramVec,
    send: HistogramVec,
    duplicates: IntCounterVec,
    doubts_settled: IntCounterVec,
    lookups: IntCounterVec,
    contradictions: IntCounterVec,
    undelivered: IntCounterVec,
    cleanups: IntCounterVec,
    gate_failures: IntCounterVec,
    webhook_requests: IntCounterVec,
    webhook_events: IntCounterVec,
    sweeps: IntCounterVec,
    swept: IntCounterVec,
}

/// Why an attempt was not made: the key was taken, or something of it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// Another execution has begun this very attempt, and nobody has answered for it.
    Open,
    /// The attempt is on record with its outcome already.
    Taken,
    /// Another execution was faster while this one prepared.
    Overtaken,
    /// The operation was settled meanwhile.
    Settled,
    /// An earlier attempt may have been accepted.
    InDoubt,
}

impl Duplicate {
    const ALL: [Self; 5] = [Self::Open, Self::Taken, Self::Overtaken, Self::Settled, Self::InDoubt];

    const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Taken => "taken",
            Self::Overtaken => "overtaken",
            Self::Settled => "settled",
            Self::InDoubt => "in_doubt",
        }
    }

    /// What a refusal to begin says, if it is about a duplicate.
    #[must_use]
    pub const fn of(cannot: CannotBegin) -> Option<Self> {
        match cannot {
            CannotBegin::NotNext => Some(Self::Overtaken),
            CannotBegin::Settled => Some(Self::Settled),
            CannotBegin::InDoubt => Some(Self::InDoubt),
            _ => None,
        }
    }
}

/// What became of a request to the webhook listener, or of an event in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventResult {
    /// Stored for the first time.
    New,
    /// It was stored before.
    Repeated,
    /// Stored, and about no operation of this ledger.
    UnknownKey,
    /// It could not be told to its operation, ever.
    Untellable,
}

impl EventResult {
    const ALL: [Self; 4] = [Self::New, Self::Repeated, Self::UnknownKey, Self::Untellable];

    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Repeated => "repeated",
            Self::UnknownKey => "unknown_key",
            Self::Untellable => "untellable",
        }
    }
}

impl Metrics {
    /// The counters of a worker for `campaign`, which hands over to `provider` (its kind).
    ///
    /// # Errors
    /// A name that is used twice, which is a defect of ours.
    pub fn new(campaign: &str, provider: &str) -> Result<Self, Error> {
        let labels = HashMap::from([("campaign".to_owned(), campaign.to_owned())]);
        let registry = Registry::new_custom(None, Some(labels))?;
        let make = Make(&registry);
        let metrics = Self {
            attempts: make.counter(
                "digestd_attempts_total",
                "Attempts by result (accepted, not_sent, unknown) and failure class.",
                &["provider", "result", "class"],
            )?,
            retries: make.counter(
                "digestd_retries_total",
                "Attempts that were refused for now, and are made again later, by failure class.",
                &["class"],
            )?,
            claim: make.histogram(
                "digestd_enqueue_to_claim_seconds",
                "From the enqueuing of an operation to the beginning of its first attempt.",
                &CLAIM_BUCKETS,
                &[],
            )?,
            send: make.histogram(
                "digestd_send_duration_seconds",
                "From the hand-over of a request to the provider's answer, late ones too.",
                &SEND_BUCKETS,
                &["provider", "result"],
            )?,
            duplicates: make.counter(
                "digestd_duplicates_refused_total",
                "Sends that were refused because the key was already taken, open or settled.",
                &["reason"],
            )?,
            doubts_settled: make.counter(
                "digestd_doubts_settled_total",
                "Attempts without an answer in time that got an outcome after all, by what told it.",
                &["by"],
            )?,
            lookups: make.counter(
                "digestd_lookups_total",
                "Questions to the provider about a doubt, by what it said.",
                &["finding"],
            )?,
            contradictions: make.counter(
                "digestd_contradictions_total",
                "Evidence against what was already decided about a key.",
                &[],
            )?,
            undelivered: make.counter(
                "digestd_undelivered_total",
                "Messages that the provider accepted and then gave up delivering.",
                &[],
            )?,
            cleanups: make.counter(
                "digestd_cleanups_total",
                "Cleanups by result (done, failed).",
                &["result"],
            )?,
            gate_failures: make.counter(
                "digestd_gate_failures_total",
                "Activities that gave no answer and are asked again, by the part that failed.",
                &["part"],
            )?,
            webhook_requests: make.counter(
                "digestd_webhook_requests_total",
                "Requests to the webhook listener by result: stored, not_stored, or why refused.",
                &["provider", "result"],
            )?,
            webhook_events: make.counter(
                "digestd_webhook_events_total",
                "Events in genuine requests: new, repeated, about an unknown key, or untellable.",
                &["provider", "result"],
            )?,
            sweeps: make.counter(
                "digestd_sweeps_total",
                "Sweeps by result (done, failed); one fails when ledger or engine do not answer.",
                &["result"],
            )?,
            swept: make.counter(
                "digestd_swept_total",
                "What sweeps have set going again: runs, operations, and waiting workflows told.",
                &["what"],
            )?,
            campaign: campaign.to_owned(),
            provider: provider.to_owned(),
            registry,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// A rate needs a zero before the first one.
    fn begin_at_zero(&self) {
        let provider = self.provider.as_str();
        for (result, class) in [("accepted", NO_CLASS), ("unknown", "ambiguous")] {
            self.attempts.with_label_values(&[provider, result, class]);
        }
        for class in FailureClass::ALL.iter().filter(|class| **class != FailureClass::Ambiguous) {
            self.attempts.with_label_values(&[provider, "not_sent", class.name()]);
        }
        for class in [FailureClass::Transport, FailureClass::Overloaded, FailureClass::RateLimited]
        {
            self.retries.with_label_values(&[class.name()]);
        }
        for result in ["accepted", "not_sent", "unknown"] {
            self.send.with_label_values(&[provider, result]);
        }
        for reason in Duplicate::ALL {
            self.duplicates.with_label_values(&[reason.name()]);
        }
        let zero = |counter: &IntCounterVec, values: &[&str]| {
            for value in values {
                counter.with_label_values(&[value]);
            }
        };
        zero(
            &self.doubts_settled,
            &["late_answer", "replay", "lookup", "event", "verdict", "time"],
        );
        zero(&self.lookups, &["accepted", "refused", "miss", "unavailable"]);
        zero(&self.cleanups, &["done", "failed"]);
        zero(&self.gate_failures, &["ledger", "source", "other"]);
        zero(&self.sweeps, &["done", "failed"]);
        zero(&self.swept, &["runs", "operations", "told"]);
        self.claim.with_label_values(NO_LABELS);
        self.contradictions.with_label_values(NO_LABELS);
        self.undelivered.with_label_values(NO_LABELS);
    }

    /// Begins what `provider` tells by webhooks at zero, where something listens for them.
    pub fn expect_webhooks(&self, provider: &str) {
        for result in ["stored", "not_stored"].into_iter().chain(crate::webhook::Refused::NAMES) {
            self.webhook_requests.with_label_values(&[provider, result]);
        }
        for result in EventResult::ALL {
            self.webhook_events.with_label_values(&[provider, result.name()]);
        }
    }

    /// Everything counted so far.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Whether operations of `campaign` count: its canaries, which the same worker serves, do not.
    #[must_use]
    pub fn counts(&self, campaign: &str) -> bool {
        campaign == self.campaign
    }

    /// Counts an attempt that was begun. The first one of an operation is its claim.
    pub fn begun(&self, answer: &Answer, begun: &Begun) {
        if begun.number == 1 && self.counts(&answer.run.campaign) {
            self.claimed(answer, begun.begun_at);
        }
    }

    fn claimed(&self, answer: &Answer, at: Timestamp) {
        if let Some(enqueued) = answer.enqueued_at {
            let waited = at.duration_since(enqueued).as_secs_f64().max(0.0);
            self.claim.with_label_values(NO_LABELS).observe(waited);
        }
    }

    /// Counts what the provider answered to one request, after `took`.
    pub fn answered(&self, replies: &[Reply], took: Duration) {
        let is = |wanted: fn(&Reply) -> bool| replies.iter().any(wanted);
        let result = if is(|reply| matches!(reply, Reply::Accepted { .. })) {
            "accepted"
        } else if is(|reply| matches!(reply, Reply::Unknown(_))) {
            "unknown"
        } else {
            "not_sent"
        };
        self.send.with_label_values(&[&self.provider, result]).observe(took.as_secs_f64());
    }

    /// Counts a send of `key` that was refused as a duplicate.
    pub fn refused(&self, key: &OperationKey, duplicate: Duplicate) {
        if self.counts(key.campaign()) {
            self.duplicates.with_label_values(&[duplicate.name()]).inc();
        }
    }

    /// Counts what `event` has changed, once the ledger has recorded it. `late` says that an answer
    /// came after the operation was taken for unknown.
    pub fn recorded(&self, event: &Event, recorded: &Recorded, late: bool) {
        if !self.counts(&recorded.answer.run.campaign) {
            return;
        }
        let (change, operation) = (&recorded.change, &recorded.answer.operation);
        let own = match event {
            Event::Answered { attempt, .. } if !late => Some(*attempt),
            Event::Closed { .. } => change.settled.first().map(|(number, _)| *number),
            _ => None,
        };
        if matches!(event, Event::Overdue { .. }) && change.note.is_none() {
            self.attempted("unknown", FailureClass::Ambiguous.name());
        }
        for (number, outcome) in change.settled.iter().filter(|(number, _)| own == Some(*number)) {
            match outcome {
                Outcome::Accepted { .. } => self.attempted("accepted", NO_CLASS),
                Outcome::NotSent(failure) => self.attempted("not_sent", failure.class.name()),
            }
            let first = *number == 1 && matches!(event, Event::Closed { .. });
            if first && operation.attempts == 1 {
                self.claimed(&recorded.answer, recorded.answer.moment.now);
            }
        }
        let others = change.settled.iter().filter(|(number, _)| own != Some(*number)).count();
        let by = match event {
            Event::Answered { .. } if late => "late_answer",
            Event::Answered { .. } => "replay",
            Event::LookedUp { .. } => "lookup",
            Event::Judged { .. } => "verdict",
            _ => "time",
        };
        self.changed(by, change, others);
        match event {
            Event::LookedUp { finding, .. } => {
                self.lookups.with_label_values(&[finding_name(finding)]).inc();
            }
            Event::CleanedUp => self.cleanups.with_label_values(&["done"]).inc(),
            Event::CleanupFailed { .. } => self.cleanups.with_label_values(&["failed"]).inc(),
            _ => {}
        }
    }

    /// Counts what an event that a provider told about `key` has changed.
    pub fn told(&self, key: &OperationKey, change: &Change) {
        if self.counts(key.campaign()) {
            self.changed("event", change, change.settled.len());
        }
    }

    /// Counts a change that has settled so many doubts by what `by` names.
    fn changed(&self, by: &str, change: &Change, settled: usize) {
        if settled > 0 {
            self.doubts_settled.with_label_values(&[by]).inc_by(settled as u64);
        }
        let refused = change.settled.iter().rev().find_map(|(_, outcome)| match outcome {
            Outcome::NotSent(failure) => Some(failure.class),
            Outcome::Accepted { .. } => None,
        });
        if let Some(class) = refused.filter(|_| change.to == State::Retrying) {
            self.retries.with_label_values(&[class.name()]).inc();
        }
        match change.note {
            Some(Note::Contradicts) => self.contradictions.with_label_values(NO_LABELS).inc(),
            Some(Note::Undelivered) => self.undelivered.with_label_values(NO_LABELS).inc(),
            _ => {}
        }
    }

    fn attempted(&self, result: &str, class: &str) {
        self.attempts.with_label_values(&[&self.provider, result, class]).inc();
    }

    /// Counts an activity that gave no answer; `part` is what failed.
    pub fn gave_no_answer(&self, part: &str) {
        self.gate_failures.with_label_values(&[part]).inc();
    }

    /// Counts a request to the webhook listener of `provider`.
    pub fn webhook_request(&self, provider: &str, result: &str) {
        self.webhook_requests.with_label_values(&[provider, result]).inc();
    }

    /// Counts `count` events of `provider`.
    pub fn webhook_events(&self, provider: &str, result: EventResult, count: u64) {
        self.webhook_events.with_label_values(&[provider, result.name()]).inc_by(count);
    }

    /// Counts a sweep that has set these going again; `None` for one that failed.
    pub fn swept(&self, swept: Option<[(&str, u64); 3]>) {
        let result = if swept.is_some() { "done" } else { "failed" };
        self.sweeps.with_label_values(&[result]).inc();
        for (what, count) in swept.into_iter().flatten() {
            self.swept.with_label_values(&[what]).inc_by(count);
        }
    }
}

const fn finding_name(finding: &Finding) -> &'static str {
    match finding {
        Finding::Accepted { .. } => "accepted",
        Finding::Refused(_) => "refused",
        Finding::Miss => "miss",
        Finding::Unavailable => "unavailable",
    }
}

/// Makes and registers.
struct Make<'a>(&'a Registry);

impl Make<'_> {
    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histogram = HistogramVec::new(options, labels)?;
        self.0.register(Box::new(histogram.clone()))?;
        Ok(histogram)
    }
}
