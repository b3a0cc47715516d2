//! digestd: configuration, command line, worker process and HTTP around the gates and the rules.

pub mod assemble;
pub mod cli;
pub mod commands;
pub mod config;
pub mod demo;
pub mod engine;
pub mod output;
pub mod report;
pub mod service;
pub mod sweep;
pub mod table;
