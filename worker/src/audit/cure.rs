//! What to do about each kind of difference.

use crate::commands::invocation;
use crate::config::Config;
use digest_activities::audit::{Difference, Kind};
use digest_workflows::operation::{OperationKey, Period};

/// What to do next about `difference`.
pub(super) fn of_difference(config: &Config, period: Period, difference: &Difference) -> String {
    let key = difference.key.as_str();
    let command = |rest: &str| format!("`{}`", invocation(config, rest));
    let show = command(&format!("show {key}"));
    match difference.kind {
        Kind::SelectionCount | Kind::NotSelected | Kind::OperationMissing | Kind::Misfiled => {
            "compare the ledger with its last backup: operations were added or removed by another \
             hand"
                .to_owned()
        }
        Kind::Unreadable => {
            "compare the ledger with its last backup: this record was changed by another hand"
                .to_owned()
        }
        Kind::StateDiffers
        | Kind::Contradiction
        | Kind::AttemptsDiffer
        | Kind::NoAcceptance
        | Kind::AcceptedTwice
        | Kind::OtherBytes
        | Kind::CleanedWithoutSent
        | Kind::Timeline
        | Kind::DeadLetter => format!(
            "{show} and compare it with the ledger's last backup: it was changed by another hand"
        ),
        Kind::ContentLeft => {
            let customer = OperationKey::parse(key).map(|key| key.customer_id().clone());
            let customer = customer.unwrap_or_default().replace('\'', "'\\''");
            let forget = command(&format!("forget --customer '{customer}' --reason …"));
            format!("{forget} erases it, with everything else of this customer")
        }
        Kind::Contradicted => {
            format!("{show} tells the evidence; the customer may have got two messages, or none")
        }
        Kind::NeverEnqueued | Kind::NoWorkflow | Kind::WorkflowEnded => {
            let worker = command("worker");
            format!("a running worker starts its workflow within a minute; start one with {worker}")
        }
        Kind::RunWithoutWorkflow => {
            let run = command(&format!("run --period {period}"));
            format!("a running worker starts it within a minute; or {run}")
        }
        Kind::RunWorkflowLeftOpen | Kind::WorkflowLeftOpen => {
            let worker = command("worker");
            format!(
                "a running worker ends it within a minute; start one with {worker}, or look with \
                 `temporal workflow describe --workflow-id {key}`"
            )
        }
        Kind::StrayWorkflow => {
            let restore = command("setup --after-restore");
            format!(
                "{restore} if the ledger was restored from a backup; else end it with `temporal \
                 workflow terminate --workflow-id {key}`"
            )
        }
        Kind::AcceptedNotSent => {
            let hold = command(&format!("hold --period {period} --reason …"));
            format!("{hold} before it is sent again, do not replay it, and look with {show}")
        }
        Kind::UnknownToProvider | Kind::RefusedByProvider | Kind::OtherMessage => {
            format!(
                "ask the provider about the message id that {show} tells; nothing is sent again"
            )
        }
        Kind::AcceptedUnknown => {
            let attempt =
                difference.attempt.map_or_else(String::new, |n| format!("--attempt {n} "));
            command(&format!("resolve {key} {attempt}--delivered --reason …"))
        }
    }
}

/// What to do next about a key that is only noted.
pub(super) fn of_note(config: &Config, key: &str) -> String {
    format!("`{}`", invocation(config, &format!("show {key}")))
}
