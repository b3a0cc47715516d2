//! digestd: configuration, command line, worker process and HTTP around the gates and the rules.

pub mod config;
