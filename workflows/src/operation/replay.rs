//! Replay of dead letters: when one may be sent again, and when it may be rendered anew before.

use super::begin::Moment;
use super::class::FailureClass;
use super::state::{Operation, State};
use jiff::Timestamp;

/// Why a dead letter is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CannotReplay {
    /// Only what is dead can be replayed.
    #[error("it is {0}, not dead")]
    NotDead(State),
    /// An attempt is in doubt, or evidence came that one was accepted after all.
    #[error("an attempt is not proven not sent")]
    NotProvenNotSent,
    /// It ended because it was too late.
    #[error("it was too late to be useful")]
    Stale,
    /// Past `useful_for` it would end stale.
    #[error("`useful_for` is over since {0}, so it would end stale")]
    TooLate(Timestamp),
    /// The customer opted out or was erased.
    #[error("the customer no longer wants it, or was erased")]
    Unwanted,
    /// The run was cancelled, so it would be suppressed.
    #[error("its run was cancelled")]
    Cancelled,
    /// The provider may still remember the key with the bytes that it got, and would refuse others.
    #[error(
        "the provider may remember the bytes that it was given until {0}; replay without --refreeze, or later"
    )]
    Remembered(Timestamp),
}

impl Operation {
    /// Whether it may be replayed at `moment`: dead, every attempt proven not sent, still useful.
    ///
    /// # Errors
    /// The first condition that fails.
    pub fn may_replay(&self, moment: &Moment) -> Result<(), CannotReplay> {
        if self.state != State::Dead {
            return Err(CannotReplay::NotDead(self.state));
        }
        // Evidence of an acceptance that came to a dead letter leaves only this mark.
        if !self.is_proven_not_sent() || self.contradicted {
            return Err(CannotReplay::NotProvenNotSent);
        }
        if self.class == Some(FailureClass::Stale) {
            return Err(CannotReplay::Stale);
        }
        if self.unwanted {
            return Err(CannotReplay::Unwanted);
        }
        if moment.cancelled {
            return Err(CannotReplay::Cancelled);
        }
        if moment.now >= moment.useful_until {
            return Err(CannotReplay::TooLate(moment.useful_until));
        }
        Ok(())
    }

    /// Whether it may be rendered anew before it is replayed at `moment`: also the provider must
    /// have forgotten the key, since inside the window it knows it with other bytes.
    ///
    /// # Errors
    /// The first condition that fails.
    pub fn may_refreeze(&self, moment: &Moment) -> Result<(), CannotReplay> {
        self.may_replay(moment)?;
        match self.remembered_until {
            Some(until) if moment.now < until => Err(CannotReplay::Remembered(until)),
            _ => Ok(()),
        }
    }
}
