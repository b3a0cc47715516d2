//! What a person decides: worked out first, in the words that are shown before it is done, and then
//! recorded in the ledger, where it counts at once. The command line, the API and the console decide
//! through here alone, so that they say and do the same.
//!
//! Workflows are told afterwards, with [`tell`](crate::tell) and [`wake`](crate::wake); one that is not
//! told finds out by itself.

pub mod replay;
pub mod resolve;
pub mod run;
