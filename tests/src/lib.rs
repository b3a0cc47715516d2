//! What the tests of several crates share: parts that are started, planted and thrown away.

pub mod postgres;
