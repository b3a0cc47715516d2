//! Why a session ended before the hand-over: at which phase and from what. Everything here is a proof
//! that nothing was sent.

use super::replies::{self, Answer};
use digest_workflows::operation::{Failure, FailureClass};
use std::io;

/// How far a session has come, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Name resolution and the TCP connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The server's first reply.
    Greeting,
    /// EHLO, before or after TLS.
    Ehlo,
    /// The STARTTLS command.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL, or RSET between two messages.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA, up to 354.
    Data,
    /// The message, before the write that carries the final dot.
    Body,
    /// From the start of that write on.
    Dot,
}

impl Phase {
    /// The phase as codes show it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Greeting => "greeting",
            Self::Ehlo => "ehlo",
            Self::StartTls => "starttls",
            Self::Auth => "auth",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Data => "data",
            Self::Body => "body",
            Self::Dot => "dot",
        }
    }
}

/// What went wrong.
#[derive(Debug)]
pub(super) enum Cause {
    /// The host's name gave no address.
    Dns,
    /// Nothing came in time.
    Timeout,
    /// The peer closed the connection.
    Closed,
    /// The connection broke or could not be made.
    Io(io::ErrorKind),
    /// What came is no reply, or not the one that was asked for.
    Garbled,
    /// The server's certificate was not accepted.
    Certificate,
    /// The TLS handshake failed in another way.
    Handshake,
    /// TLS is required and not offered.
    NoTls,
    /// Credentials are given, and no mechanism that takes them is offered.
    NoAuth,
    /// The message or an address is beyond what the server offers.
    Beyond(FailureClass, &'static str),
    /// A reply that ends the delivery.
    Answer(Answer),
}

/// The end of a session before the hand-over.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) phase: Phase,
    pub(super) cause: Cause,
}

impl Stop {
    pub(super) const fn new(phase: Phase, cause: Cause) -> Self {
        Self { phase, cause }
    }

    /// What an I/O error at `phase` was. The TLS layer hands its own errors through this type.
    pub(super) fn io(phase: Phase, error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let cause = match (tls, error.kind()) {
            (Some(rustls::Error::InvalidCertificate(_)), _) => Cause::Certificate,
            (Some(_), _) => Cause::Handshake,
            (None, io::ErrorKind::InvalidData) => Cause::Garbled,
            (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => Cause::Closed,
            (None, kind) => Cause::Io(kind),
        };
        Self { phase, cause }
    }

    /// Whether the server has definitely answered, so that another connection would hear the same. A
    /// 4yz may be about the connection.
    pub(super) fn is_final(&self) -> bool {
        match &self.cause {
            Cause::Answer(answer) => (500..=599).contains(&answer.code),
            Cause::Beyond(..) => true,
            _ => false,
        }
    }

    /// Whether the session is in step and may go on after RSET.
    pub(super) fn leaves_session_usable(&self) -> bool {
        match &self.cause {
            Cause::Answer(answer) => (400..=599).contains(&answer.code) && answer.code != 421,
            Cause::Beyond(..) => true,
            _ => false,
        }
    }

    /// The failure: not sent, with its class.
    pub(super) fn failure(&self) -> Failure {
        let class = match &self.cause {
            Cause::Answer(answer) => return replies::failure(self.phase, answer),
            Cause::Dns
            | Cause::Timeout
            | Cause::Closed
            | Cause::Io(_)
            | Cause::Garbled
            | Cause::Handshake => FailureClass::Transport,
            Cause::Certificate | Cause::NoTls | Cause::NoAuth => FailureClass::Configuration,
            Cause::Beyond(class, _) => *class,
        };
        Failure::new(class, format!("smtp {} {}", self.phase.name(), self.what()))
    }

    /// The failure in a sentence for an operator: what was tried, what came back, what to do.
    pub(super) fn explain(&self, server: &str) -> String {
        let phase = self.phase.name();
        let next = match &self.cause {
            Cause::Dns => "check the host name in provider.url",
            Cause::Io(_) | Cause::Timeout if self.phase == Phase::Connect => {
                "check host and port in provider.url, and that a firewall lets the connection through"
            }
            Cause::Certificate => {
                "use the name the certificate was issued for, or name the authority that signed it \
                 in provider.ca_file"
            }
            Cause::Handshake | Cause::Garbled | Cause::Timeout | Cause::Closed => {
                "check that scheme and port fit together: smtps:// speaks TLS at once (465), smtp:// \
                 begins in the clear (587, 25)"
            }
            Cause::NoTls => {
                "ask the server's owner for TLS, or write smtp+insecure:// if the network between is \
                 trusted and no credentials are needed"
            }
            Cause::NoAuth => {
                "check that this port takes mail from accounts (submission), or unset \
                 DIGESTD_PROVIDER_USERNAME and DIGESTD_PROVIDER_PASSWORD"
            }
            Cause::Answer(_) if self.phase == Phase::Auth => {
                "check DIGESTD_PROVIDER_USERNAME and DIGESTD_PROVIDER_PASSWORD"
            }
            Cause::Io(_) | Cause::Beyond(..) | Cause::Answer(_) => "ask the server's owner why",
        };
        let came = match &self.cause {
            Cause::Answer(_) => format!("the server answered `{}`", self.failure().code),
            _ => self.what(),
        };
        format!("tried {server} and failed at {phase}: {came}; {next}")
    }

    fn what(&self) -> String {
        let what = match &self.cause {
            Cause::Dns => "no address for the name",
            Cause::Timeout => "timeout",
            Cause::Closed => "closed by the server",
            Cause::Io(io::ErrorKind::ConnectionRefused) => "refused",
            Cause::Io(io::ErrorKind::ConnectionReset) => "reset",
            Cause::Io(kind) => return kind.to_string(),
            Cause::Garbled => "unexpected answer",
            Cause::Certificate => "certificate not trusted",
            Cause::Handshake => "handshake failed",
            Cause::NoTls => "no TLS offered",
            Cause::NoAuth => "no PLAIN or LOGIN offered",
            Cause::Beyond(_, what) => what,
            Cause::Answer(answer) => return answer.code.to_string(),
        };
        what.to_owned()
    }
}
