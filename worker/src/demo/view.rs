//! The live view: on a terminal a bar per gate, the counts, and the newest transitions; elsewhere
//! plain lines. Both on standard error, so that standard output has results only.

use super::Stage;
use super::story::{Story, Transition};
use crate::output;
use digest_activities::ledger::{ClassCount, RunStatus};
use digest_workflows::operation::State;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::VecDeque;
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
    Bars(Bars),
    Lines { counted: Option<Instant>, counts: String },
}

struct Bars {
    all: MultiProgress,
    eligibility: ProgressBar,
    delivery: ProgressBar,
    cleanup: ProgressBar,
    counts: ProgressBar,
    met: ProgressBar,
    newest: Vec<ProgressBar>,
    lines: VecDeque<String>,
    colours: bool,
}

impl View {
    /// A view of the run on `stage`, whose files are in `folder`.
    pub(super) fn new(stage: &Stage, folder: &Path) -> Self {
        let customers = u64::from(stage.cast.customers);
        let head = format!(
            "digestd demo: {customers} customers, period {}\nweb UI  {}\nfolder  {}\n",
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
            Screen::Bars(bars)
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
                let now = self::counts(&status.classes);
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
        let text = || {
            let style = ProgressStyle::with_template("{wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            // A blank keeps an empty line's place.
            all.add(ProgressBar::new(0).with_style(style).with_message(" "))
        };
        text().tick();
        let (counts, met) = (text(), text());
        text().tick();
        let newest = (0..NEWEST).map(|_| text()).collect();
        let colours = output::colours(&std::io::stderr());
        let lines = VecDeque::with_capacity(NEWEST);
        Self { all, eligibility, delivery, cleanup, counts, met, newest, lines, colours }
    }

    fn update(&mut self, customers: u64, status: &RunStatus, new: &[Transition], story: &Story) {
        self.eligibility.set_length(customers.max(status.selected));
        self.eligibility.set_position(status.selected);
        self.delivery.set_length(status.selected.max(1));
        self.delivery.set_position(settled(status));
        self.cleanup.set_length(status.sent.max(1));
        self.cleanup.set_position(status.cleaned);
        self.counts.set_message(counts(&status.classes));
        let met = story.met();
        let met: Vec<String> = met.iter().map(|(what, count)| format!("{count} {what}")).collect();
        if !met.is_empty() {
            self.met.set_message(format!("so far: {}", met.join(" · ")));
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
        for bar in [&self.eligibility, &self.delivery, &self.cleanup, &self.counts, &self.met]
            .into_iter()
            .chain(&self.newest)
        {
            bar.abandon();
        }
        // Without this the last lines would be taken for ones that may be drawn over.
        self.all.set_move_cursor(false);
    }
}

/// The operations with a definite answer.
fn settled(status: &RunStatus) -> u64 {
    status.sent + status.suppressed + status.dead + status.expired
}

/// How many are in which state, and of which class.
fn counts(classes: &[ClassCount]) -> String {
    let mut parts: Vec<(State, u64, Vec<String>)> = Vec::new();
    for line in classes {
        if parts.last().is_none_or(|(state, ..)| *state != line.state) {
            parts.push((line.state, 0, Vec::new()));
        }
        if let Some((state, count, classes)) = parts.last_mut() {
            *count += line.count;
            if let Some(class) = line.class.filter(|class| class.name() != state.name()) {
                classes.push(format!("{} {class}", line.count));
            }
        }
    }
    let words: Vec<String> = parts
        .into_iter()
        .map(|(state, count, classes)| match classes.as_slice() {
            [] => format!("{count} {state}"),
            classes => format!("{count} {state} ({})", classes.join(", ")),
        })
        .collect();
    words.join(" · ")
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
    use digest_workflows::operation::FailureClass;

    #[test]
    fn counts_name_classes_only_where_they_say_more_than_the_state() {
        let count = |state, class, count| ClassCount { state, class, count };
        let classes = vec![
            count(State::Retrying, Some(FailureClass::Overloaded), 2),
            count(State::Retrying, Some(FailureClass::RateLimited), 1),
            count(State::Cleaned, None, 9),
            count(State::Suppressed, Some(FailureClass::Suppressed), 1),
        ];
        assert_eq!(
            counts(&classes),
            "3 retrying (2 overloaded, 1 rate_limited) · 9 cleaned · 1 suppressed"
        );
    }
}
