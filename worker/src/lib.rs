//! digestd: configuration, command line, worker process and HTTP around the gates and the rules.

pub mod ask;
pub mod assemble;
pub mod audit;
pub mod check;
pub mod cli;
pub mod commands;
pub mod config;
pub mod decide;
pub mod demo;
pub mod engine;
pub mod http;
pub(crate) mod interruption;
pub mod keys;
pub mod metrics;
pub mod missed;
pub mod output;
pub mod report;
pub mod restore;
pub mod retention;
pub mod service;
pub mod sweep;
pub mod table;
pub mod tell;
pub mod wake;
pub mod webhooks;
pub mod workflows;
