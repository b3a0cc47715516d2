//! Hold, resume and cancel: decisions about a whole run.

use digest_activities::ledger::{Actor, Ledger, LedgerError, Run, RunState};
use digest_workflows::operation::{Period, Rules};

/// What is decided about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunDecision {
    /// No attempt begins until it is resumed.
    Hold,
    /// Its hold ends.
    Resume,
    /// Whatever is certainly not sent yet never will be.
    Cancel,
}

/// What a decision would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// This, in a sentence or two.
    Would(String),
    /// Nothing, because it is so already; in a sentence.
    Nothing(String),
}

/// What a decision did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This, in a sentence.
    Done(String),
    /// Nothing, because it is so already; in a sentence.
    Nothing(String),
}

impl RunDecision {
    /// Every one of them.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Resume, Self::Cancel];

    /// Its name: that of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }

    /// The decision called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }

    /// What it would do now. Changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`] for all but a hold, or any error of an unreachable ledger.
    pub async fn plan(
        self,
        ledger: &Ledger,
        campaign: &str,
        period: Period,
    ) -> Result<Plan, LedgerError> {
        let id = digest_workflows::run_id(campaign, period);
        let run = ledger.run(campaign, period).await?;
        if self == Self::Hold {
            return Ok(run.and_then(|run| held(&id, &run)).map_or_else(
                || {
                    Plan::Would(format!(
                        "Holding {id} stops it where it is: no attempt begins until it is resumed. \
                         What is being sent now ends as it ends, and nothing is given up."
                    ))
                },
                Plan::Nothing,
            ));
        }
        let run = run.ok_or_else(|| LedgerError::NoSuchRun {
            campaign: campaign.to_owned(),
            period: period.to_string(),
        })?;
        match self {
            Self::Cancel => cancelling(ledger, &id, &run).await,
            _ => resuming(ledger, &id, &run).await,
        }
    }

    /// Records it.
    ///
    /// # Errors
    /// As [`plan`](Self::plan). Cancelling again goes on where it stopped.
    pub async fn take(
        self,
        ledger: &Ledger,
        campaign: &str,
        period: Period,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Outcome, LedgerError> {
        if let Plan::Nothing(why) = self.plan(ledger, campaign, period).await? {
            return Ok(Outcome::Nothing(why));
        }
        let id = digest_workflows::run_id(campaign, period);
        Ok(match self {
            Self::Hold => {
                let because = actor.reason.unwrap_or_default();
                ledger.hold(campaign, period, because, actor).await?;
                Outcome::Done(format!("{id} is held: no attempt begins until it is resumed"))
            }
            Self::Resume => {
                if ledger.resume(campaign, period, actor).await? {
                    Outcome::Done(format!("{id} is resumed"))
                } else {
                    Outcome::Nothing(format!("{id} was resumed meanwhile"))
                }
            }
            Self::Cancel => {
                let suppressed = ledger.cancel(campaign, period, rules, actor).await?;
                Outcome::Done(format!("{id} is cancelled: {suppressed} messages are suppressed"))
            }
        })
    }
}

fn held(id: &str, run: &Run) -> Option<String> {
    run.held_since?;
    let because = run.held_because.as_deref().unwrap_or_default();
    Some(format!("{id} was held before ({because}); nothing was changed"))
}

async fn resuming(ledger: &Ledger, id: &str, run: &Run) -> Result<Plan, LedgerError> {
    if run.held_since.is_none() {
        return Ok(Plan::Nothing(format!("{id} is not held; nothing was changed")));
    }
    let stale = ledger.stale_on_resume(&run.campaign, run.period).await?;
    let because = run.held_because.as_deref().unwrap_or_default();
    Ok(Plan::Would(format!(
        "{id} is held: {because}. Of its messages, {stale} are too late to be useful by now and will \
         end as dead letters of class stale, which cannot be replayed; the others go on."
    )))
}

async fn cancelling(ledger: &Ledger, id: &str, run: &Run) -> Result<Plan, LedgerError> {
    let count = ledger.cancellable(&run.campaign, run.period).await?;
    let again = run.cancelled_at.is_some();
    if run.state == RunState::Closed || (again && count == 0) {
        let what = if again { "was cancelled before" } else { "is closed" };
        return Ok(Plan::Nothing(format!("{id} {what}; nothing was changed")));
    }
    let more = match run.state {
        RunState::Planned | RunState::Freezing => ", and whatever its selection still brings",
        _ => "",
    };
    Ok(Plan::Would(format!(
        "Cancelling {id} suppresses {count} messages that are certainly not sent yet{more}: they \
         never will be. What is being sent or is unknown keeps its course."
    )))
}
