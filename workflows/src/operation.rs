//! The decision core: one customer in one period, as a pure state machine.
//!
//! Read it in this order: [`key`] and [`period`] name the operation, [`class`] says why an attempt
//! failed, [`policy`] how long to wait, [`contract`] what a provider can promise, [`state`] where an
//! operation stands, [`begin`] when an attempt may begin, [`batch`] when several may in one request,
//! [`replay`] when a dead letter may, [`canary`] what a test message is, [`event`] what can happen, [`step`] what comes next, and
//! [`sound`] what is true of every operation. The ledger applies every transition with this code
//! inside one transaction, and the workflow asks the same code for the next step, so there is no
//! second copy of a rule.

pub mod batch;
pub mod begin;
pub mod canary;
pub mod class;
pub mod contract;
pub mod event;
pub mod key;
pub mod period;
pub mod policy;
pub mod replay;
pub mod sound;
pub mod state;
pub mod step;
mod transition;
mod words;

#[cfg(test)]
mod tests;

pub use batch::{BatchRef, Shares};
pub use begin::{CannotBegin, Intent, Moment};
pub use canary::Rehearsal;
pub use class::{Failure, FailureClass};
pub use contract::{Batch, Contract, Lookup, ProviderRef, Replay};
pub use event::{Change, Event, Finding, Note, Outcome};
pub use key::{KeyError, OperationKey};
pub use period::{Period, PeriodError};
pub use policy::{Breakers, RetryPolicy, Rules, Timeouts, UnknownRules};
pub use replay::CannotReplay;
pub use state::{Doubt, Operation, State, Verdict};
pub use step::{Step, Why};
