//! What an operation's workflow says of itself: current details for the web UI, and the state search
//! attribute.

use super::CustomerDigest;
use crate::activities::Pause;
use crate::attributes;
use crate::operation::{Operation, OperationKey, State};
use temporalio_workflow::WorkflowContext;

/// Says in words what the operation waits for, and upserts its state, only off the happy path.
pub(super) fn show(ctx: &WorkflowContext<CustomerDigest>) {
    let cancelled = ctx.cancellation_token().is_cancelled();
    let details = ctx.state(|s| s.details(cancelled));
    ctx.set_current_details(details);
    let state = ctx.state(CustomerDigest::state_to_show);
    if state != ctx.state(|s| s.shown.clone()) {
        ctx.upsert_search_attributes([attributes::STATE.value_set(state.clone())]);
        ctx.state_mut(|s| s.shown = state);
    }
}

impl CustomerDigest {
    /// What the state search attribute should say. Selected, sending and a prompt sent are
    /// `active`; once it says something else it is kept true.
    fn state_to_show(&self) -> String {
        if self.pause == Some(Pause::Held) {
            return "held".to_owned();
        }
        let unusual = self.shown != attributes::ACTIVE;
        match self.answer.as_ref().map(|(operation, _)| operation.state) {
            None | Some(State::Selected | State::Sending) => attributes::ACTIVE.to_owned(),
            Some(State::Sent | State::Cleaned) if !unusual => attributes::ACTIVE.to_owned(),
            Some(state) => state.name().to_owned(),
        }
    }

    fn details(&self, cancelled: bool) -> String {
        let key = &self.input.key;
        let mut lines = vec![format!("**{key}**")];
        if let Some((operation, _)) = &self.answer {
            let class = operation.class.map(|class| format!(", last failure: {class}"));
            lines.push(format!(
                "{} since {}{}",
                operation.state,
                operation.since,
                class.unwrap_or_default()
            ));
        }
        if self.pause == Some(Pause::Held) {
            lines.push("The run is held: nothing is sent until `digestd resume`.".to_owned());
        }
        if !self.waits_for.is_empty() {
            lines.push(format!("Waits for {}.", self.waits_for));
        }
        if let Some((operation, _)) =
            self.answer.as_ref().filter(|(o, _)| o.state == State::Unknown)
        {
            lines.extend(how_to_resolve(key, operation));
        }
        if cancelled {
            lines.push(
                "Cancellation was requested. It stops nothing here: use `digestd cancel` for the \
                 run, or `digestd resolve` for this operation."
                    .to_owned(),
            );
        }
        lines.extend(self.remarks.iter().map(|remark| format!("- {remark}")));
        lines.join("\n\n")
    }
}

/// The exact commands for an unknown, with the attempt that a verdict has to name.
fn how_to_resolve(key: &OperationKey, operation: &Operation) -> Vec<String> {
    let attempt = operation.newest_handed_over;
    let acts = operation.settles_at().map_or_else(String::new, |at| {
        format!(
            " A verdict of not delivered is acted on at {at}, one of delivered when the lease ends."
        )
    });
    vec![
        format!("The provider may or may not have accepted attempt {attempt}.{acts}"),
        format!(
            "`digestd resolve {key} --delivered --attempt {attempt} --reason \"…\"` (or \
             `--not-delivered`, `--abandon`)"
        ),
        format!(
            "`temporal workflow signal --workflow-id {key} --name reconcile --input \
             '{{\"verdict\":\"delivered\",\"attempt\":{attempt},\"by\":\"…\",\"reason\":\"…\"}}'`"
        ),
    ]
}
