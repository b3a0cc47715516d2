//! The decision core: one customer in one period, as a pure state machine.
//!
//! Read it in this order: [`key`] and [`period`] name the operation, [`class`] says why an attempt
//! failed, [`policy`] how long to wait, [`contract`] what a provider can promise, and [`machine`]
//! what happens next. The ledger applies every transition with this code inside one transaction,
//! and the workflow asks the same code for the next step, so there is no second copy of a rule.

pub mod class;
pub mod contract;
pub mod key;
pub mod period;
pub mod policy;

pub use class::{Failure, FailureClass};
pub use contract::{Contract, Lookup, ProviderRef, Replay};
pub use key::{KeyError, OperationKey};
pub use period::{Period, PeriodError};
pub use policy::{RetryPolicy, Rules};
