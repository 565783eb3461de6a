//! What is known of a stream and its two ends: what was posted and has not completed, and what is
//! under way from one end to the other, in the order of posting.

use std::collections::VecDeque;

use rnic_ipc::control::{DisconnectReason, MpaOptions, Transport};
use rnic_ipc::id::{CqId, PdId, QpNum};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;

use crate::program::Piece;

/// Work of a send queue.
#[derive(Clone, Debug)]
pub struct Posted {
    pub id: u64,
    pub opcode: WrOpcode,
    pub signaled: bool,
    /// Bytes that a Read or an Atomic Operation brings.
    pub len: u32,
    /// Where an Atomic Operation's original value goes in the memory.
    pub sink: Option<usize>,
    /// What it does to an STag of this node.
    pub local: Option<Local>,
    /// How it may end besides success and flush.
    pub errors: Vec<WcStatus>,
    /// It can't succeed.
    pub hopeless: bool,
}

/// Work that sends nothing, and the region or window that it is about.
#[derive(Clone, Copy, Debug)]
pub enum Local {
    Bind(usize),
    Invalidate(usize),
}

#[derive(Clone, Debug)]
pub struct Receive {
    pub id: u64,
    pub places: Vec<Piece>,
    /// The Send that will consume it, once posted.
    pub send: Option<u64>,
    /// How it may end besides success and flush.
    pub errors: Vec<WcStatus>,
}

impl Receive {
    pub fn room(&self) -> usize {
        self.places.iter().map(|place| place.len).sum()
    }
}

/// What is under way to the other end.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: u64,
    pub what: What,
    /// Its work has succeeded: all of it was handed to TCP.
    pub handed: bool,
}

#[derive(Clone, Debug)]
pub enum What {
    Write,
    Read,
    Atomic,
    Send(Sent),
    /// Ends the stream where it arrives.
    Fatal,
    /// It is no message.
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Sent {
    /// The receive that it takes; none when it takes any of a shared receive queue.
    pub receive: Option<u64>,
    pub bytes: Vec<u8>,
    pub solicited: bool,
    pub invalidate: Option<Stag>,
    /// It is Immediate Data, and this the data.
    pub immediate: Option<u64>,
}

impl What {
    /// The other end answers it, and may do so later than it delivers what comes behind.
    pub fn is_request(&self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

/// Work that is done when the other end has answered.
pub fn is_request(opcode: WrOpcode) -> bool {
    use WrOpcode::{AtomicCompareSwap, AtomicFetchAdd, Read};
    matches!(opcode, Read | AtomicFetchAdd | AtomicCompareSwap)
}

/// Where the life of an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Opening,
    Up,
    /// Its connection is gone: the queue pair is in Error.
    Over,
    /// The queue pair was destroyed.
    Gone,
}

#[derive(Debug)]
pub struct End {
    pub node: usize,
    pub qp: QpNum,
    pub pd: PdId,
    /// Of its send queue and of its receives.
    pub cqs: [CqId; 2],
    /// Which of the simulation's shared receive queues it takes from, if not from one of its own.
    pub srq: Option<usize>,
    pub signal_all: bool,
    /// Elements that its work may have.
    pub max_sge: u32,
    pub mpa: MpaOptions,
    pub life: Life,
    pub sq: VecDeque<Posted>,
    pub rq: VecDeque<Receive>,
    /// Messages of this end, until they are known to be delivered.
    pub line: VecDeque<Message>,
    /// Work of the send queue failed and all behind it is flushed, a receive failed, any work of the
    /// send queue failed. Behind none of them there is a success.
    pub failed: [bool; 3],
    /// No receive may be posted: a Send is on its way that must not find one.
    pub bare: bool,
}

impl End {
    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Opening | Life::Up)
    }

    /// Of its own receive queue.
    pub fn receive_without_send(&mut self) -> Option<&mut Receive> {
        self.rq.iter_mut().find(|receive| receive.send.is_none())
    }
}

/// Why a stream may end.
#[derive(Clone, Debug)]
pub struct Cause {
    pub what: &'static str,
    /// What each end may be told. Empty: anything.
    pub reasons: [Vec<DisconnectReason>; 2],
}

#[derive(Debug)]
pub struct Stream {
    /// What DDP goes over.
    pub transport: Transport,
    pub port: u16,
    /// The initiator's and the responder's.
    pub ends: [End; 2],
    /// The responder took the request.
    pub accepted: bool,
    /// Its frames go over the internal link that joins its nodes.
    pub internal: bool,
    pub causes: Vec<Cause>,
}

impl Stream {
    pub fn is_doomed(&self) -> bool {
        !self.causes.is_empty()
    }

    /// It has one cause to end, and that one says how.
    pub fn certain_cause(&self) -> Option<&Cause> {
        match &self.causes[..] {
            [cause] if cause.reasons.iter().all(|reasons| !reasons.is_empty()) => Some(cause),
            _ => None,
        }
    }

    /// Both sides agreed on CRCs: one of them asked. SCTP's checksum is one.
    pub fn has_crc(&self) -> bool {
        self.transport == Transport::Sctp || self.ends.iter().any(|end| end.mpa.crc)
    }
}
