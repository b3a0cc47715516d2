//! `digestd canary`: a test message on the real path, to an address of the operator's.

use crate::canary::{self, Report, Request};
use crate::check;
use crate::cli::Exit;
use crate::cli::operate::CanaryArgs;
use crate::config::{Config, Secrets};
use crate::output;
use digest_workflows::operation::canary::campaign_of_canaries;

/// Sends a canary, with `--force-failures` after everything was checked and with two more, and prints
/// what that has shown.
///
/// # Errors
/// What keeps a message from being sent at all; nothing was sent then.
pub(super) async fn run(config: Config, args: CanaryArgs) -> anyhow::Result<Exit> {
    let request = Request {
        customer: args.customer,
        to: args.to,
        period: args.period,
        rehearse: args.force_failures,
        timeout: args.timeout,
    };
    let before =
        if request.rehearse { Box::pin(check::everything(&config.file)).await } else { Vec::new() };
    let campaign = campaign_of_canaries(&config.campaign.name);
    let exit = check::exit(&before);
    let report = if exit == Exit::Done {
        let secrets = Secrets::from_env()?;
        let sent = Box::pin(canary::send(&config, &secrets, &request)).await?;
        canary::report(campaign, before, &sent, &config.engine.task_queue)
    } else {
        canary::not_sent(campaign, before, exit)
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(report.exit())
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.checks.iter().map(ToString::to_string).collect();
    lines.push(String::new());
    lines.push(report.verdict().to_owned());
    lines.join("\n")
}
