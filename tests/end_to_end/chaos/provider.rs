//! A provider that misbehaves by itself, can be killed, and keeps the record of what it took.

use crate::end_to_end::crash_points::Kind;
use crate::end_to_end::world::{Plan, World, of_mail};
use digest_activities::provider::sandbox::{Behaviour, FaultKind, Sandbox};
use digest_tests::smtp::{Act, At, Ending, Script, SmtpServer, Traits};
use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// How many connections to the mail server may go wrong.
const CONNECTIONS: usize = 2_000;
/// The share of them that does.
const SHARE: f64 = 0.2;

/// The provider of one storm.
pub(super) enum Provider {
    /// A mail server; it is away while the proxy before it is cut.
    Mail(Arc<SmtpServer>),
    /// A sandbox, which may be down.
    Http(Box<Http>),
}

/// A sandbox on its log.
pub(super) struct Http {
    behaviour: Behaviour,
    log: PathBuf,
    address: SocketAddr,
    running: Option<Sandbox>,
}

impl Provider {
    /// Starts one for a world of its kind.
    pub(super) async fn start(kind: Kind, world: &mut World, seed: u64) -> Self {
        let mut behaviour = match kind {
            Kind::Smtp => {
                let server = SmtpServer::start(Traits::default(), scripts(seed)).unwrap();
                let server = Arc::new(server);
                let record = Arc::clone(&server);
                world.received_by(move || of_mail(&record.record().stored));
                return Self::Mail(server);
            }
            Kind::None => Behaviour::none(),
            Kind::LookUp => Behaviour::lookup(true),
            Kind::Replay => Behaviour::replay(),
        };
        behaviour.seed = seed;
        behaviour.latency = SignedDuration::from_millis(30);
        behaviour.faults.late_answer = SignedDuration::from_secs(2);
        behaviour.faults.shares = FaultKind::ALL
            .into_iter()
            // One that stops the whole run until somebody comes is not what a storm is for.
            .filter(|kind| *kind != FaultKind::Configuration)
            .map(|kind| (kind, if kind.accepts() { 0.01 } else { 0.015 }))
            .collect();
        let log = world.folder().join("sandbox.log");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sandbox = Sandbox::start(behaviour.clone(), any, Some(log.clone())).await.unwrap();
        let address = sandbox.url().trim_start_matches("http://").parse().unwrap();
        Self::Http(Box::new(Http { behaviour, log, address, running: Some(sandbox) }))
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Mail(server) => SocketAddr::from(([127, 0, 0, 1], server.port())),
            Self::Http(http) => http.address,
        }
    }

    /// It ends as by SIGKILL.
    pub(super) fn kill(&mut self) {
        if let Self::Http(http) = self {
            http.running = None;
        }
    }

    /// It is back, with what it remembers.
    pub(super) async fn restart(&mut self) {
        let Self::Http(http) = self else { return };
        while http.running.is_none() {
            let (behaviour, log) = (http.behaviour.clone(), Some(http.log.clone()));
            // Its port may be held for a moment by what was just ended.
            http.running = Sandbox::start(behaviour, http.address, log).await.ok();
            if http.running.is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }

    /// How often it misbehaved by itself, by the name of what it did.
    pub(super) fn misbehaved(&self, world: &World) -> Vec<(String, u32)> {
        match self {
            Self::Mail(server) => {
                let record = server.record();
                let endings = record.endings.iter().filter(|ending| **ending == Ending::ByServer);
                let ended = u32::try_from(endings.count()).unwrap();
                let silent = u32::try_from(record.silences).unwrap();
                vec![("a mail server ended it".into(), ended), ("fell silent".into(), silent)]
            }
            Self::Http(_) => {
                let faults = world.requests().into_iter().filter_map(|request| request.fault);
                faults.map(|fault| (fault, 1)).collect()
            }
        }
    }
}

/// The world's settings for a provider of this kind.
pub(super) fn settings(kind: Kind, plan: Plan) -> Plan {
    match kind {
        // Its address is set when there is one.
        Kind::Smtp => plan.smtp(2525),
        Kind::None => plan.with("sandbox.contract", "none"),
        Kind::LookUp => plan.with("sandbox.contract", "lookup"),
        Kind::Replay => plan.with("sandbox.contract", "replay"),
    }
}

/// What goes wrong on which connection to the mail server.
fn scripts(seed: u64) -> Vec<Script> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..CONNECTIONS)
        .map(|_| {
            if !random.random_bool(SHARE) {
                return Script::new();
            }
            let (at, act) = match random.random_range(0..11) {
                0 => (At::Greeting, Act::Hang),
                1 => (At::Mail, Act::RawThenClose("421 4.7.0 too many connections\r\n")),
                2 => (At::Rcpt, Act::Say("550 5.1.1 no such user")),
                3 => (At::Rcpt, Act::Say("450 4.2.1 slow down")),
                4 => (At::Body, Act::Reset),
                5 => (At::Dot, Act::Say("451 4.3.0 come again")),
                6 => (At::Dot, Act::Reset),
                7 => (At::Dot, Act::Hang),
                8 => (At::Dot, Act::store_then(Act::Hang)),
                9 => (At::Dot, Act::store_then(Act::Reset)),
                _ => (At::Dot, Act::Say("554 5.7.1 not wanted")),
            };
            vec![(at, act)]
        })
        .collect()
}
