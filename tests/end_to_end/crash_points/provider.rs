//! Providers that outlive every worker, and keep the record of what they took.

use crate::end_to_end::world::{Plan, Taken, of_mail, of_witness};
use digest_activities::provider::sandbox::{Behaviour, CustomerFaults, FaultKind, Sandbox};
use digest_tests::smtp::{Act, At, Script, SmtpServer, Traits};
use std::net::SocketAddr;
use std::sync::Arc;

/// The customers whose first answer is lost, where answers are to be lost.
const DOUBTED: [&str; 3] = ["customer-0003", "customer-0008", "customer-0013"];

/// Which promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::end_to_end) enum Kind {
    /// A mail server, which promises nothing.
    Smtp,
    /// An HTTP provider that promises nothing.
    None,
    /// One that can be asked, and where a miss counts.
    LookUp,
    /// One that returns the original for the same request under the same key.
    Replay,
}

impl Kind {
    pub(in crate::end_to_end) const fn name(self) -> &'static str {
        match self {
            Self::Smtp => "smtp",
            Self::None => "none",
            Self::LookUp => "look-up",
            Self::Replay => "replay",
        }
    }

    /// Whether the contract settles every doubt without a person.
    pub(in crate::end_to_end) const fn settles(self) -> bool {
        matches!(self, Self::LookUp | Self::Replay)
    }
}

/// A running provider; clones are the same one.
#[derive(Clone)]
pub(super) enum Provider {
    Mail(Arc<SmtpServer>),
    Http(Arc<Sandbox>, &'static str),
}

impl Provider {
    /// Starts one; with `doubts` it takes three messages and loses its answers.
    pub(super) async fn start(kind: Kind, doubts: bool) -> Self {
        let (mut behaviour, contract) = match kind {
            Kind::Smtp => {
                let lost: Script = vec![(At::Dot, Act::store_then(Act::Reset))];
                let scripts = vec![lost; if doubts { DOUBTED.len() } else { 0 }];
                return Self::Mail(Arc::new(
                    SmtpServer::start(Traits::default(), scripts).unwrap(),
                ));
            }
            Kind::None => (Behaviour::none(), "none"),
            Kind::LookUp => (Behaviour::lookup(true), "lookup"),
            Kind::Replay => (Behaviour::replay(), "replay"),
        };
        if doubts {
            let lost = |customer: &&str| CustomerFaults {
                customer: (*customer).to_owned(),
                kinds: vec![FaultKind::AcceptThenReset],
                times: 1,
                invisible: false,
            };
            behaviour.faults.customers = DOUBTED.iter().map(lost).collect();
        }
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::Http(Arc::new(Sandbox::start(behaviour, listen, None).await.unwrap()), contract)
    }

    /// A world that delivers to it.
    pub(super) fn serve(&self, plan: Plan) -> Plan {
        match self {
            Self::Mail(server) => plan.smtp(server.port()),
            Self::Http(sandbox, contract) => {
                plan.with("provider.url", sandbox.url()).with("sandbox.contract", *contract)
            }
        }
    }

    /// What it has taken.
    pub(super) fn taken(&self) -> Vec<Taken> {
        match self {
            Self::Mail(server) => of_mail(&server.record().stored),
            Self::Http(sandbox, _) => of_witness(&sandbox.witness()),
        }
    }
}
