//! Replays: dead letters are sent again, after what killed them is fixed.

use crate::assemble;
use crate::config::{Config, Secrets};
use digest_activities::ledger::{Actor, Answer, Ledger, LedgerError, NotReplayed, ToReplay};
use digest_activities::message::Templates;
use digest_activities::refreeze::{RefreezeError, refreeze};
use digest_activities::source::Source;
use digest_workflows::operation::{OperationKey, Rules};

/// What a message is rendered anew from.
pub struct Anew {
    source: Source,
    templates: Templates,
}

impl Anew {
    /// Today's source and templates.
    ///
    /// # Errors
    /// A URL, a query or a template that cannot be used.
    pub fn load(config: &Config, secrets: &Secrets) -> anyhow::Result<Self> {
        Ok(Self {
            source: assemble::source(config, secrets)?,
            templates: assemble::templates(config, secrets)?,
        })
    }
}

/// What a replay would do with one key.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The key.
    pub key: OperationKey,
    /// The dead letter and what would be sent, or why it is not replayed.
    pub plan: Result<(Box<Answer>, ToReplay), String>,
}

impl Planned {
    /// What will be done, in words.
    #[must_use]
    pub fn intended(&self) -> String {
        match &self.plan {
            Ok((_, letter)) if letter.refrozen.is_some() => {
                "sent, rendered from today's template and row".to_owned()
            }
            Ok(_) => "sent as it was frozen".to_owned(),
            Err(why) => format!("refused: {why}"),
        }
    }
}

/// What a replay of `keys` would do; with `anew`, each message is rendered now, and nothing is stored.
///
/// # Errors
/// An unreachable ledger or source; a key that can't be replayed is refused in the answer.
pub async fn plan(
    ledger: &Ledger,
    keys: &[OperationKey],
    anew: Option<&Anew>,
) -> anyhow::Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for key in keys {
        let plan = plan_one(ledger, key, anew).await?;
        planned.push(Planned { key: key.clone(), plan });
    }
    Ok(planned)
}

async fn plan_one(
    ledger: &Ledger,
    key: &OperationKey,
    anew: Option<&Anew>,
) -> anyhow::Result<Result<(Box<Answer>, ToReplay), String>> {
    let answer = match ledger.may_replay(key, anew.is_some()).await? {
        Ok(answer) => answer,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let refrozen = match anew {
        None => None,
        Some(Anew { source, templates }) => {
            match refreeze(source, templates, &answer.run, key).await {
                Ok(refrozen) => Some(refrozen),
                Err(RefreezeError::Source(error)) => return Err(error.into()),
                Err(why) => return Ok(Err(why.to_string())),
            }
        }
    };
    Ok(Ok((Box::new(answer), ToReplay { key: key.clone(), refrozen })))
}

/// The letters to replay, if every key can be.
#[must_use]
pub fn letters(planned: &[Planned]) -> Option<Vec<ToReplay>> {
    planned.iter().map(|one| one.plan.as_ref().ok().map(|(_, letter)| letter.clone())).collect()
}

/// Why the run of these keys is held, if it is: nothing of what is replayed is sent before it is
/// resumed.
#[must_use]
pub fn held(planned: &[Planned]) -> Option<String> {
    let (answer, _) = planned.first()?.plan.as_ref().ok()?;
    answer.run.held_since?;
    answer.run.held_because.clone()
}

/// Replays all of them in one transaction, or none: then the refused ones come back with the reason.
///
/// # Errors
/// Any error of the ledger.
pub async fn replay(
    ledger: &Ledger,
    letters: &[ToReplay],
    rules: &Rules,
    actor: Actor<'_>,
) -> Result<Result<usize, Vec<(OperationKey, NotReplayed)>>, LedgerError> {
    Ok(ledger.replay(letters, rules, actor).await?.map(|replayed| replayed.len()))
}

/// So many messages.
#[must_use]
pub fn count(keys: usize) -> String {
    if keys == 1 { "1 message".to_owned() } else { format!("{keys} messages") }
}
