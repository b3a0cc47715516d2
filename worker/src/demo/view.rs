//! The live view: on a terminal a bar per gate, the counts, and the newest transitions; elsewhere
//! plain lines. Both on standard error, so that standard output has results only.

use super::Stage;
use super::story::{Story, Transition};
use crate::output;
use digest_activities::ledger::{ClassCount, RunStatus};
use digest_workflows::operation::{FailureClass, State};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// How many of the newest transitions are shown.
const NEWEST: usize = 6;

/// How often a line of counts is written where there is no terminal.
const COUNTS_EVERY: Duration = Duration::from_secs(2);

/// Whoever watches sees the run here.
pub(super) struct View {
    customers: u64,
    screen: Screen,
}

enum Screen {
    Bars(Box<Bars>),
    Lines { counted: Option<Instant>, counts: String },
}

struct Bars {
    eligibility: ProgressBar,
    delivery: ProgressBar,
    cleanup: ProgressBar,
    states: ProgressBar,
    classes: ProgressBar,
    met: ProgressBar,
    blanks: [ProgressBar; 2],
    newest: Vec<ProgressBar>,
    lines: VecDeque<String>,
    colours: bool,
}

impl View {
    /// A view of the run on `stage`, whose files are in `folder`.
    pub(super) fn new(stage: &Stage, folder: &Path) -> Self {
        let customers = u64::from(stage.cast.customers);
        let head = format!(
            "digestd demo: {customers} customers, period {} (times are in UTC)\nweb UI  {}\nfolder  {}\n",
            stage.period,
            stage.config.engine.ui_url,
            folder.display()
        );
        // Who cannot read it misses nothing that the report does not tell.
        let _ = output::say(&head);
        let bars = Bars::new(customers);
        let screen = if bars.eligibility.is_hidden() {
            Screen::Lines { counted: None, counts: String::new() }
        } else {
            Screen::Bars(Box::new(bars))
        };
        Self { customers, screen }
    }

    /// Shows how the run stands, and what happened since.
    pub(super) fn update(&mut self, status: &RunStatus, new: &[Transition], story: &Story) {
        match &mut self.screen {
            Screen::Bars(bars) => bars.update(self.customers, status, new, story),
            Screen::Lines { counted, counts } => {
                for transition in new.iter().filter(|transition| !transition.is_usual()) {
                    let _ = output::say(&line(transition, false));
                }
                let now = states(&status.classes);
                if *counts != now && counted.is_none_or(|at| at.elapsed() >= COUNTS_EVERY) {
                    let _ = output::say(&format!("{}: {now}", status.state));
                    (*counted, *counts) = (Some(Instant::now()), now);
                }
            }
        }
    }

    /// Leaves what is shown where it is; nothing is drawn any more.
    pub(super) fn close(&mut self) {
        if let Screen::Bars(bars) = &self.screen {
            bars.close();
        }
        self.screen = Screen::Lines { counted: Some(Instant::now()), counts: String::new() };
    }
}

impl Bars {
    fn new(customers: u64) -> Self {
        let all = MultiProgress::new();
        let gate = |name: &'static str, colour: &str, unit: &str| {
            let template =
                format!("{{prefix:11}} {{bar:40.{colour}}} {{pos:>6}} of {{len}} {unit}");
            let style = ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("██░");
            all.add(ProgressBar::new(customers).with_style(style).with_prefix(name))
        };
        let eligibility = gate("eligibility", "cyan", "customers frozen");
        let delivery = gate("delivery", "green", "messages settled");
        let cleanup = gate("cleanup", "blue", "delivered ones cleaned");
        let text = |template: &str, message: &'static str| {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            all.add(ProgressBar::new(0).with_style(style).with_message(message))
        };
        let labelled = |name: &'static str| text("{prefix:11} {wide_msg}", "-").with_prefix(name);
        // A blank keeps an empty line's place.
        let above = text("{wide_msg}", " ");
        let states = labelled("states");
        let classes = labelled("classes");
        let met = labelled("so far");
        let below = text("{wide_msg}", " ");
        let newest: Vec<_> = (0..NEWEST).map(|_| text("{wide_msg}", " ")).collect();
        let blanks = [above, below];
        for bar in blanks.iter().chain([&states, &classes, &met]).chain(&newest) {
            bar.tick();
        }
        let colours = output::colours(&std::io::stderr());
        let lines = VecDeque::with_capacity(NEWEST);
        Self {
            eligibility,
            delivery,
            cleanup,
            states,
            classes,
            met,
            blanks,
            newest,
            lines,
            colours,
        }
    }

    fn update(&mut self, customers: u64, status: &RunStatus, new: &[Transition], story: &Story) {
        self.eligibility.set_length(customers.max(status.selected));
        self.eligibility.set_position(status.selected);
        self.delivery.set_length(status.selected.max(1));
        self.delivery.set_position(settled(status));
        self.cleanup.set_length(status.sent.max(1));
        self.cleanup.set_position(status.cleaned);
        self.states.set_message(states(&status.classes));
        self.classes.set_message(classes(&status.classes));
        let met = story.met();
        let met: Vec<String> = met.iter().map(|(what, count)| format!("{count} {what}")).collect();
        if !met.is_empty() {
            self.met.set_message(met.join(" · "));
        }
        for transition in new.iter().rev().take(NEWEST).rev() {
            if self.lines.len() == NEWEST {
                self.lines.pop_front();
            }
            self.lines.push_back(line(transition, self.colours));
        }
        for (bar, line) in self.newest.iter().zip(&self.lines) {
            bar.set_message(line.clone());
        }
    }

    fn close(&self) {
        for bar in [
            &self.eligibility,
            &self.delivery,
            &self.cleanup,
            &self.states,
            &self.classes,
            &self.met,
        ]
        .into_iter()
        .chain(&self.blanks)
        .chain(&self.newest)
        {
            bar.abandon();
        }
        // Drawing leaves the cursor at the end of the last line.
        let _ = output::say("");
    }
}

/// The operations with a definite answer.
fn settled(status: &RunStatus) -> u64 {
    status.sent + status.suppressed + status.dead + status.expired
}

/// How many are in which state.
fn states(classes: &[ClassCount]) -> String {
    let mut states: Vec<(State, u64)> = Vec::new();
    for line in classes {
        match states.last_mut() {
            Some((state, count)) if *state == line.state => *count += line.count,
            _ => states.push((line.state, line.count)),
        }
    }
    listed(states.iter().map(|(state, count)| (state.name(), *count)))
}

/// How many have failed last, or wait, in which class.
fn classes(classes: &[ClassCount]) -> String {
    let mut sums: BTreeMap<FailureClass, u64> = BTreeMap::new();
    for line in classes {
        if let Some(class) = line.class {
            *sums.entry(class).or_default() += line.count;
        }
    }
    listed(sums.iter().map(|(class, count)| (class.name(), *count)))
}

fn listed<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let words: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" · ") }
}

/// One transition in one line.
pub(super) fn line(transition: &Transition, colours: bool) -> String {
    let Transition { at, key, from, to, why } = transition;
    let colour = match to.as_str() {
        _ if !colours => "",
        "cleaned" | "sent" => "\u{1b}[32m",
        "retrying" | "unknown" => "\u{1b}[33m",
        "dead" => "\u{1b}[31m",
        "suppressed" => "\u{1b}[36m",
        _ => "",
    };
    let reset = if colour.is_empty() { "" } else { "\u{1b}[0m" };
    format!("{at}  {key}  {from} → {colour}{to}{reset}  {why}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_classes_are_counted_once_each() {
        let count = |state, class, count| ClassCount { state, class, count };
        let counts = [
            count(State::Retrying, Some(FailureClass::Overloaded), 2),
            count(State::Retrying, Some(FailureClass::RateLimited), 1),
            count(State::Unknown, Some(FailureClass::Ambiguous), 1),
            count(State::Cleaned, None, 9),
        ];
        assert_eq!(states(&counts), "3 retrying · 1 unknown · 9 cleaned");
        let classes = classes(&counts);
        for part in ["2 overloaded", "1 rate_limited", "1 ambiguous"] {
            assert!(classes.contains(part), "{classes}");
        }
        assert_eq!(states(&[]), "-");
    }
}
