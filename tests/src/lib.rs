//! What the tests of several crates share: parts that are started, planted and thrown away.

pub mod postgres;
//! What tests of several crates share: servers that misbehave on purpose, and starters of real ones.

pub mod absent;
pub mod mail_server;
pub mod smtp;
