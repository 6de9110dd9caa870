//! Keys among which the time of items is divided.

use crate::compare::waits::WaitKey;
use crate::units::FunctionId;

/// Key of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Samples of a function, as the number of events that they stand for.
    Function(FunctionId),
    /// Time off the CPU; of all functions together where the place is chance ([`is_anywhere`](crate::compare::waits::is_anywhere)).
    Wait(WaitKey),
    /// Time in no stage, before the stage of a probe.
    Handover(u16),
    /// Time in the stage of a probe that went to other items of the same batch.
    Others(u16),
}

impl Key {
    /// Whether it is sampled, not observed.
    pub(crate) const fn is_sampled(self) -> bool {
        matches!(self, Self::Function(_))
    }

    /// The function to be named.
    pub(crate) const fn function(self) -> Option<FunctionId> {
        match self {
            Self::Function(id) => Some(id),
            Self::Wait(wait) => wait.function,
            Self::Handover(_) | Self::Others(_) => None,
        }
    }
}
