//! How long work of the send queue takes: from when it is taken off the queue to its completion, by
//! what it does.

use rnic_ipc::work::WrOpcode;

use crate::histogram::Histogram;

/// What a work request does, as its time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkClass {
    /// Sends of all kinds, and Immediate Data.
    Send,
    /// RDMA Writes, with Immediate Data or without.
    Write,
    /// RDMA Reads.
    Read,
    Atomic,
    /// Local Invalidate, the binding of windows, fast registration.
    Local,
}

impl WorkClass {
    pub const ALL: [Self; 5] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::Local,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Local => "local",
        }
    }

    /// That of an opcode as the client wrote it; none when it means nothing on a send queue.
    pub(super) fn of(opcode: u8) -> Option<Self> {
        Some(match WrOpcode::from_u8(opcode)? {
            WrOpcode::Send
            | WrOpcode::SendInvalidate
            | WrOpcode::SendImmediate
            | WrOpcode::Immediate => Self::Send,
            WrOpcode::Write | WrOpcode::WriteImmediate => Self::Write,
            WrOpcode::Read => Self::Read,
            WrOpcode::AtomicFetchAdd | WrOpcode::AtomicCompareSwap => Self::Atomic,
            WrOpcode::LocalInvalidate | WrOpcode::BindWindow | WrOpcode::FastRegister => {
                Self::Local
            }
            WrOpcode::Recv => return None,
        })
    }
}

/// Times of work that succeeded, for each [`WorkClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkTimes([Histogram; WorkClass::ALL.len()]);

impl WorkTimes {
    pub fn of(&self, class: WorkClass) -> &Histogram {
        &self.0[class as usize]
    }

    pub(super) fn of_mut(&mut self, class: WorkClass) -> &mut Histogram {
        &mut self.0[class as usize]
    }
}
