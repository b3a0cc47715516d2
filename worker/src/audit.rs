//! The audit of one period: what was selected, what the ledger has, what the engine drives and what
//! the provider says, compared key by key. It reads page by page and changes nothing. What differs
//! while something is under way is looked at again before it is called a difference.

mod cure;
mod engine;
mod provider;

use crate::assemble::Delivering;
use crate::config::Config;
use crate::report::{ago, clock};
use digest_activities::audit::{Difference, Kind, books};
use digest_activities::ledger::{AuditPage, Entry, Ledger, Tally};
use digest_workflows::operation::{Operation, Period, Rules, State};
use engine::Engine;
use jiff::Timestamp;
use provider::Asker;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use temporalio_client::Client;

/// How many operations are read at once.
const PAGE: u32 = 500;

/// What an audit stands on.
pub struct Audit<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The ledger.
    pub ledger: &'a Ledger,
    /// The engine.
    pub client: Client,
    /// The provider, or why it is not asked.
    pub provider: Result<Delivering, &'static str>,
    /// The period.
    pub period: Period,
}

/// What an audit found; the JSON of `digestd audit`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The period.
    pub period: Period,
    /// The campaign's name.
    pub campaign: String,
    /// The id of the run's workflow.
    pub run: String,
    /// How far the ledger has the run.
    pub run_state: &'static str,
    /// How many operations were selected.
    pub selected: u64,
    /// How many operations are in which state; a failed cleanup is one of its own.
    pub states: BTreeMap<&'static str, u64>,
    /// How many keys were compared with what.
    pub compared: Compared,
    /// What differs.
    pub differences: Vec<Named>,
    /// What is no difference, and worth a look: overdue and undelivered keys.
    pub noted: Vec<Named>,
    /// How many operations rest as unknown or expired.
    pub waiting_for_human: u64,
    /// Why the provider was not asked, where it was not.
    pub provider_not_asked: Option<&'static str>,
    /// Whether nothing differs.
    pub balanced: bool,
}

/// How many keys were compared with what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Within the ledger.
    pub ledger: u64,
    /// With the engine: the ledger's keys, and those that only the engine has.
    pub engine: u64,
    /// With the provider; `None` where it was not asked.
    pub provider: Option<u64>,
    /// Not compared with the provider, since an attempt was handed to another one or another
    /// account.
    pub provider_elsewhere: u64,
}

/// Something about one key, with what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// What kind it is.
    pub kind: &'static str,
    /// The operation's key, or the id of the run.
    pub key: String,
    /// What the books say it should be.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do next.
    pub cure: String,
}

impl Audit<'_> {
    /// Compares everything. `said` hears how many operations of how many are done.
    ///
    /// # Errors
    /// When ledger, engine or provider do not answer: nothing is concluded from that.
    pub async fn run(self, said: impl Fn(u64, u64)) -> anyhow::Result<Report> {
        let campaign = self.config.campaign.name.as_str();
        let rules = self.config.rules();
        let expected = self.ledger.tally(campaign, self.period).await?.operations;
        let engine = Engine { client: self.client, ledger: self.ledger.clone(), rules };
        let driven = engine.list(campaign, self.period).await?;
        let (asker, provider_not_asked) = match self.provider {
            Ok(delivering) => (Some(Asker::new(delivering, self.config)), None),
            Err(why) => (None, Some(why)),
        };
        let mut findings = Findings { suspects: driven.strays.clone(), ..Findings::default() };
        findings.compared.provider = asker.as_ref().map(|_| 0);
        let mut after = None;
        loop {
            let page =
                self.ledger.audit_page(campaign, self.period, after.as_deref(), PAGE).await?;
            findings.take(&page, self.config, &engine.rules);
            findings.suspects.extend(engine.suspects(&page, &driven));
            if let Some(asker) = &asker {
                let done = |count| said(findings.compared.ledger + count, expected);
                let stated = asker.ask(self.ledger, &page, done).await?;
                findings.differences.extend(stated.differences);
                *findings.compared.provider.get_or_insert(0) += stated.asked;
                findings.compared.provider_elsewhere += stated.elsewhere;
            }
            findings.compared.ledger += page.entries.len() as u64;
            said(findings.compared.ledger, expected);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let strays = driven.strays.len() as u64;
        findings.compared.engine = findings.compared.ledger + strays;
        let missing: BTreeSet<String> = findings.missing();
        findings.suspects.retain(|key| !missing.contains(key));
        let suspects = std::mem::take(&mut findings.suspects);
        findings.differences.extend(engine.confirm(campaign, self.period, suspects).await?);
        let tally = self.ledger.tally(campaign, self.period).await?;
        findings.count(&tally);
        Ok(findings.report(self.config, &tally, provider_not_asked))
    }
}

/// What was found so far.
#[derive(Default)]
struct Findings {
    differences: Vec<Difference>,
    noted: Vec<Named>,
    states: BTreeMap<&'static str, u64>,
    compared: Compared,
    waiting: u64,
    /// Keys between ledger and engine that have to be looked at again.
    suspects: Vec<String>,
}

impl Findings {
    /// Compares a page of the ledger with itself.
    fn take(&mut self, page: &AuditPage, config: &Config, rules: &Rules) {
        for entry in &page.entries {
            self.differences.extend(books::differences(entry, &page.run, rules, page.now));
            if let Ok(operation) = &entry.operation {
                self.note(entry, operation, config, rules, page.now);
            }
        }
        for key in &page.orphans {
            let found = "attempts, decisions, a dead letter or content, and no operation";
            let expected = "an operation for each record";
            self.differences.push(Difference::new(Kind::OperationMissing, key, expected, found));
        }
    }

    fn note(
        &mut self,
        entry: &Entry,
        operation: &Operation,
        config: &Config,
        rules: &Rules,
        now: Timestamp,
    ) {
        let state = match operation.state {
            State::Sent if operation.cleanup.given_up => "cleanup_failed",
            state => state.name(),
        };
        *self.states.entry(state).or_default() += 1;
        let rests = operation.state == State::Unknown && entry.columns.at_rest;
        self.waiting += u64::from(rests || operation.state == State::Expired);
        let mut note = |kind, expected: String, found: String| {
            let (key, cure) = (entry.key.clone(), cure::of_note(config, &entry.key));
            self.noted.push(Named { kind, key, expected, found, cure });
        };
        let patience = rules.unknown.escalate_after;
        if operation.state == State::Unknown && now >= operation.since + patience {
            let waits = operation.waits_for(now);
            let found = format!("unknown since {}, waits for {waits}", clock(operation.since));
            note("overdue", format!("an answer within {}", ago(patience)), found);
        }
        if operation.undelivered {
            let found = "accepted, and then given up by the provider".to_owned();
            note("undelivered", "delivered".to_owned(), found);
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(move |one| one.kind == kind)
    }

    fn missing(&self) -> BTreeSet<String> {
        self.of(Kind::OperationMissing).map(|one| one.key.clone()).collect()
    }

    /// Compares the number of operations with that of the selected ones. What is named already
    /// explains it.
    fn count(&mut self, tally: &Tally) {
        let (selected, there) = (tally.run.selected, tally.operations);
        let named = |kind| self.of(kind).count() as u64;
        // A workflow without an operation may be that of a lost one, or of one never selected.
        let (lost, strays) = (named(Kind::OperationMissing), named(Kind::StrayWorkflow));
        let explained = match selected.cmp(&there) {
            Ordering::Equal => true,
            Ordering::Greater => (lost..=lost + strays).contains(&(selected - there)),
            Ordering::Less => there - selected == named(Kind::NotSelected),
        };
        if !explained {
            let run = digest_workflows::run_id(&tally.run.campaign, tally.run.period);
            let expected = format!("{selected} operations, as selected");
            let found = format!("{there} operations");
            self.differences.push(Difference::new(Kind::SelectionCount, &run, expected, found));
        }
    }

    fn report(
        mut self,
        config: &Config,
        tally: &Tally,
        provider_not_asked: Option<&'static str>,
    ) -> Report {
        let run = &tally.run;
        self.differences.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        let name = |one: Difference| Named {
            kind: one.kind.name(),
            cure: cure::of_difference(config, run.period, &one),
            key: one.key,
            expected: one.expected,
            found: one.found,
        };
        let differences: Vec<Named> = self.differences.into_iter().map(name).collect();
        Report {
            period: run.period,
            campaign: run.campaign.clone(),
            run: digest_workflows::run_id(&run.campaign, run.period),
            run_state: run.state.name(),
            selected: run.selected,
            states: self.states,
            compared: self.compared,
            noted: self.noted,
            waiting_for_human: self.waiting,
            provider_not_asked,
            balanced: differences.is_empty(),
            differences,
        }
    }
}
