//! `digestd show`: one operation whole, or all periods of a customer, canaries with the customer's data
//! among them.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::ShowArgs;
use crate::config::{Config, Secrets};
use crate::retention::campaigns;
use crate::{links, output, report};
use anyhow::bail;
use digest_activities::ledger::{Ledger, Shown};
use digest_workflows::operation::OperationKey;

/// Prints one operation, or every one of a customer.
///
/// # Errors
/// An unreachable ledger, or no such operation.
pub(super) async fn run(config: Config, args: ShowArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let mut keys: Vec<_> = args.key.iter().cloned().collect();
    // A canary has a customer's data too.
    for campaign in campaigns(&config.campaign.name) {
        if let Some(customer) = &args.customer {
            keys.extend(ledger.keys_of(&campaign, customer).await?);
        }
    }
    if keys.is_empty() {
        bail!(
            "the ledger knows no operation of this customer in the campaign {:?}; is the id \
             written as the source has it?",
            config.campaign.name
        );
    }
    let mut shown = Vec::new();
    for key in &keys {
        shown.push(look(&ledger, &config, key).await?);
    }
    let now = ledger.now().await?;
    match (args.json, shown.as_slice()) {
        (true, [one]) if args.key.is_some() => output::print_json(one)?,
        (true, all) => output::print_json(&all)?,
        (false, all) => {
            let texts: Vec<String> =
                all.iter().map(|shown| report::operation(shown, now)).collect();
            output::print(&texts.join("\n\n"))?;
        }
    }
    Ok(Exit::Done)
}

async fn look(ledger: &Ledger, config: &Config, key: &OperationKey) -> anyhow::Result<Shown> {
    let mut shown = ledger.show(key).await?;
    shown.ui_url = Some(links::of_operation(config, key));
    Ok(shown)
}
