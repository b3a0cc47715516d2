//! `digestd forget`: erases a customer's content and address; the keys stay.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::ForgetArgs;
use crate::config::{Config, Secrets};
use crate::retention::campaigns;
use crate::{output, wake};
use anyhow::bail;
use digest_activities::ledger::{Actor, Forgotten};
use digest_workflows::operation::State;

/// Erases everything that the ledger holds of the customer beside keys, states and times, in this
/// campaign and its canaries. Exits with 3 if nothing was left.
///
/// # Errors
/// An unreachable ledger, or a customer of whom it knows no operation.
pub(super) async fn run(config: Config, args: ForgetArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let rules = config.rules();
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    let mut forgotten = Forgotten::default();
    for campaign in campaigns(&config.campaign.name) {
        forgotten.add(ledger.forget(&campaign, &args.customer, &rules, actor).await?);
    }
    if forgotten.keys == 0 {
        bail!(
            "the ledger knows no operation of this customer in the campaign {:?}, so nothing was \
             erased; is the id written as the source has it?",
            config.campaign.name
        );
    }
    if forgotten.is_nothing() {
        output::print(&format!("nothing was left to forget in {} operations", forgotten.keys))?;
        return Ok(Exit::AlreadyHappened);
    }
    output::print(&text(&forgotten))?;
    if ledger.suppression(&config.campaign.name, &args.customer).await?.is_some() {
        output::print(
            "the customer stays suppressed, which keeps them from being written to again; \
             `digestd suppressions` lists them",
        )?;
    }
    let open: Vec<_> = forgotten.open.into_iter().map(|key| (key, State::Suppressed)).collect();
    wake::wake(&config, &ledger, &open).await?;
    Ok(if forgotten.in_doubt > 0 { Exit::NeedsHuman } else { Exit::Done })
}

fn text(forgotten: &Forgotten) -> String {
    let mut lines = vec![format!(
        "content and address erased in {} of {} operations",
        forgotten.erased, forgotten.keys
    )];
    for (count, what) in [
        (forgotten.suppressed, "were open, and end suppressed"),
        (forgotten.dead, "are dead letters, and cannot be replayed any more"),
        (
            forgotten.in_doubt,
            "may have been delivered already: they wait for an answer, and are never sent again",
        ),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines.push("the keys stay; the source is yours to erase".to_owned());
    lines.join("\n")
}
