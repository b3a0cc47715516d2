//! The rules of digestd: what a period is, what an operation may do next, and the workflows that
//! drive it on the engine.
//!
//! Nothing here does I/O, reads a clock or draws randomness of its own: time, randomness and every
//! answer of the outside world come in as arguments. Open [`operation`] to read the whole promise
//! without knowing Temporal.

pub mod operation;
