//! What a client of `rnic-perf` tells its server in the private data of the MPA request, and what
//! the server answers in its reply: everything else is the measurement itself.

use rnic::RemoteMemory;
use serde::{Deserialize, Serialize};

use crate::size;

/// Changes when the encoding does.
const VERSION: u8 = 1;

/// The kinds of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// RDMA Write, client to server.
    Write,
    /// Send, client to server.
    Send,
    /// RDMA Read, server to client.
    Read,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// Payload bytes a second, many messages outstanding.
    Bandwidth,
    /// Time of one message there (and, but for Read, one back), one at a time.
    Latency,
}

/// A run, as the client wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    version: u8,
    /// What is moved.
    pub operation: Operation,
    /// What is measured.
    pub figure: Figure,
    /// Bytes of a message.
    pub size: u32,
    /// Messages outstanding.
    pub depth: u32,
    /// Bytes of memory that the messages go round in, a whole number of messages but for the
    /// last one's end.
    pub span: u64,
    /// Check every byte.
    pub verify: bool,
    /// Of the pattern that both ends compute.
    pub seed: u64,
    stag: u32,
    addr: u64,
}

/// The most memory that a client may make the server register for messages, in bytes.
pub const SPAN_MAX: u64 = 8 << 30;
/// The most messages outstanding.
pub const DEPTH_MAX: u32 = 4096;

/// What the server answers: where its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    version: u8,
    stag: u32,
    addr: u64,
}

/// Private data that is not a plan of this version.
#[derive(Debug, thiserror::Error)]
#[error(
    "the private data ({found} bytes) is not rnic-perf's of version {VERSION}: is the other end \
     rnic-perf of the same version?"
)]
pub struct NotAPlan {
    found: usize,
}

impl Plan {
    /// A plan whose client has `memory` for the server to write to.
    pub fn new(operation: Operation, figure: Figure, size: u32, depth: u32, span: u64) -> Self {
        Self {
            version: VERSION,
            operation,
            figure,
            size,
            depth,
            span,
            verify: false,
            seed: 0,
            stag: 0,
            addr: 0,
        }
    }

    /// Adds the client's memory, which a server writes back to when latency of Writes is measured.
    pub fn with_memory(mut self, memory: RemoteMemory) -> Self {
        self.stag = memory.stag;
        self.addr = memory.addr;
        self
    }

    /// The client's memory.
    pub fn memory(&self) -> RemoteMemory {
        RemoteMemory {
            stag: self.stag,
            addr: self.addr,
            len: self.span,
        }
    }

    /// Messages in the span; the last may be shorter than the others.
    pub fn slots(&self) -> u64 {
        if self.size == 0 {
            1
        } else {
            self.span.div_ceil(u64::from(self.size)).max(1)
        }
    }

    /// Where message number `index` lies in the span: offset and bytes.
    pub fn place(&self, index: u64) -> (u64, u32) {
        let offset = (index % self.slots()) * u64::from(self.size);
        let rest = self.span.saturating_sub(offset);
        (
            offset,
            u32::try_from(rest).unwrap_or(u32::MAX).min(self.size),
        )
    }

    /// Receives that a server of Sends posts: as many as the client has credit for, and one for its
    /// last note, which needs none.
    pub fn receives(&self) -> u32 {
        match self.operation {
            Operation::Send => 2 * self.depth + 1,
            Operation::Write | Operation::Read => 0,
        }
    }

    /// Whether it can be served: the other end may have written anything.
    pub fn check(&self) -> Result<(), String> {
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(format!(
                "{} messages outstanding: between 1 and {DEPTH_MAX} are possible",
                self.depth
            ));
        }
        let received = u64::from(self.size) * u64::from(self.receives());
        let needed = self.span.max(received);
        if needed > SPAN_MAX {
            return Err(format!(
                "this needs {} of memory, of which a server gives at most {}: lower --size, --depth \
                 or --bytes",
                size::show(needed),
                size::show(SPAN_MAX)
            ));
        }
        if self.figure == Figure::Latency && self.operation == Operation::Write && self.size == 0 {
            return Err(
                "the latency of Writes is seen by their last byte changing: --size must be at \
                 least 1"
                    .into(),
            );
        }
        Ok(())
    }

    /// For the MPA request.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("fixed-size numbers always encode")
    }

    /// From a MPA request.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotAPlan> {
        postcard::from_bytes(bytes)
            .ok()
            .filter(|plan: &Self| plan.version == VERSION)
            .ok_or(NotAPlan { found: bytes.len() })
    }
}

/// The server's private data.
pub fn encode_answer(memory: RemoteMemory) -> Vec<u8> {
    let answer = Answer {
        version: VERSION,
        stag: memory.stag,
        addr: memory.addr,
    };
    postcard::to_stdvec(&answer).expect("fixed-size numbers always encode")
}

/// The server's memory, of the plan's span.
pub fn decode_answer(bytes: &[u8], span: u64) -> Result<RemoteMemory, NotAPlan> {
    postcard::from_bytes(bytes)
        .ok()
        .filter(|answer: &Answer| answer.version == VERSION)
        .map(|answer| RemoteMemory {
            stag: answer.stag,
            addr: answer.addr,
            len: span,
        })
        .ok_or(NotAPlan { found: bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_ends_with_the_span() {
        let plan = Plan::new(Operation::Write, Figure::Bandwidth, 1000, 4, 2500);
        assert_eq!(plan.slots(), 3);
        assert_eq!(plan.place(0), (0, 1000));
        assert_eq!(plan.place(2), (2000, 500));
        assert_eq!(plan.place(3), (0, 1000));
    }

    #[test]
    fn empty_messages_have_one_place() {
        let plan = Plan::new(Operation::Send, Figure::Bandwidth, 0, 4, 1);
        assert_eq!(plan.place(7), (0, 0));
    }

    #[test]
    fn strangers_private_data_is_no_plan() {
        let plan = Plan::new(Operation::Read, Figure::Latency, 1, 1, 1);
        assert_eq!(Plan::decode(&plan.encode()).ok(), Some(plan));
        assert!(Plan::decode(b"").is_err());
        assert!(Plan::decode(b"hello").is_err());
    }

    #[test]
    fn a_plan_that_a_server_cannot_serve_is_refused_with_the_reason() {
        let write = |size, depth, span| {
            Plan::new(Operation::Write, Figure::Latency, size, depth, span).check()
        };
        assert_eq!(write(64, 1, 192), Ok(()));
        assert!(
            write(0, 1, 1).is_err(),
            "no byte whose change could be seen"
        );
        assert!(write(64, 0, 192).is_err());
        assert!(write(64, DEPTH_MAX + 1, 192).is_err());
        assert!(write(64, 1, SPAN_MAX + 1).is_err());
        let send =
            |size, depth| Plan::new(Operation::Send, Figure::Bandwidth, size, depth, 1).check();
        assert_eq!(send(65_536, 16), Ok(()));
        assert!(send(u32::MAX, DEPTH_MAX).is_err(), "receives of a terabyte");
    }
}
