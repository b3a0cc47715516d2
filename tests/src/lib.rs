//! What the tests of several crates share: servers that misbehave on purpose, and starters of real
//! ones.

pub mod absent;
pub mod api_server;
pub mod authority;
pub mod browser;
pub mod faketime;
pub mod handshake;
pub mod histories;
pub mod mail_server;
pub mod mariadb;
pub mod moto;
pub mod postgres;
pub mod prometheus;
pub mod proxy;
mod scripted;
pub mod small_disk;
pub mod smtp;
pub mod sns;
pub mod svix;
pub mod tellers;
pub mod twilio;
mod watched;

pub use scripted::free_port;
