//! What the two ends say beside the messages that are measured: short Sends with a solicited event.

use rnic::{
    Access, MemoryRegion, ProtectionDomain, WcStatus, WorkCompletion, WorkRequest, WrOpcode,
};

use crate::endpoint::{Endpoint, ToolError};

/// Bytes of a note.
pub const NOTE: usize = 17;

/// Notes that may be on their way to one end at a time: receives posted for them.
pub const NOTES_IN_FLIGHT: u32 = 8;

/// `wr_id`s from here on are the notes' own.
const NOTE_WR: u64 = 1 << 63;
const NOTE_OUT: u64 = NOTE_WR | 1 << 62;

/// Something said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    Done {
        messages: u64,
    },
    /// Server: so many receives were posted again.
    Credit {
        messages: u64,
    },
    /// Server: every byte was compared.
    Verified {
        bytes: u64,
    },
    /// Server: a byte is not what it should be.
    Corrupt {
        position: u64,
    },
    /// Server: all is done, nothing was compared.
    Finished,
}

impl Note {
    fn encode(self) -> [u8; NOTE] {
        let (kind, value) = match self {
            Self::Done { messages } => (1, messages),
            Self::Credit { messages } => (2, messages),
            Self::Verified { bytes } => (3, bytes),
            Self::Corrupt { position } => (4, position),
            Self::Finished => (5, 0),
        };
        let mut bytes = [0; NOTE];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&u64::to_be_bytes(value));
        bytes
    }

    fn decode(bytes: [u8; NOTE]) -> Option<Self> {
        let [kind, v0, v1, v2, v3, v4, v5, v6, v7, ..] = bytes;
        let value = u64::from_be_bytes([v0, v1, v2, v3, v4, v5, v6, v7]);
        Some(match kind {
            1 => Self::Done { messages: value },
            2 => Self::Credit { messages: value },
            3 => Self::Verified { bytes: value },
            4 => Self::Corrupt { position: value },
            5 => Self::Finished,
            _ => return None,
        })
    }
}

/// The memory that notes come and go in: a ring of receives and one of sends.
#[derive(Debug)]
pub struct Notes {
    memory: MemoryRegion,
    out: u64,
}

impl Notes {
    /// Registers the memory; no receive is posted yet.
    pub fn new(pd: &ProtectionDomain) -> Result<Self, ToolError> {
        let local = Access::LOCAL_WRITE;
        Ok(Self {
            memory: pd.register(2 * NOTES_IN_FLIGHT as usize * NOTE, local)?,
            out: 0,
        })
    }

    /// Posts receives for as many notes as may be on their way. For ends whose receives are notes
    /// only: where messages are received too, any receive may get a note.
    pub fn expect(&self, end: &Endpoint) -> Result<(), ToolError> {
        (0..u64::from(NOTES_IN_FLIGHT)).try_for_each(|index| self.expect_one(end, index))
    }

    fn expect_one(&self, end: &Endpoint, index: u64) -> Result<(), ToolError> {
        let at = index as usize * NOTE;
        let sge = self.memory.slice(at..at + NOTE)?;
        Ok(end
            .qp
            .post_recv(WorkRequest::recv(NOTE_WR | index, &[sge]))?)
    }

    pub fn say(&mut self, end: &Endpoint, note: Note) -> Result<(), ToolError> {
        let index = self.out % u64::from(NOTES_IN_FLIGHT);
        self.out += 1;
        let at = (u64::from(NOTES_IN_FLIGHT) + index) as usize * NOTE;
        self.memory.write(at, &note.encode())?;
        let sge = self.memory.slice(at..at + NOTE)?;
        Ok(end
            .qp
            .post_send(WorkRequest::send(NOTE_OUT | index, &[sge]).solicited())?)
    }

    /// The note in this completion, if it is one that came in; its receive is posted again.
    pub fn heard(&self, end: &Endpoint, done: &WorkCompletion) -> Result<Option<Note>, ToolError> {
        if done.opcode != WrOpcode::Recv || done.wr_id & NOTE_WR == 0 {
            return Ok(None);
        }
        let index = done.wr_id & !NOTE_WR;
        let note = read(&self.memory, index as usize * NOTE, done)?;
        self.expect_one(end, index)?;
        Ok(Some(note))
    }

    /// Waits for a note for as long as the connection is there: while the peer Writes or Reads, nothing
    /// else is heard of it.
    pub fn await_end(&self, end: &mut Endpoint) -> Result<Note, ToolError> {
        loop {
            match self.listen(end) {
                Err(ToolError::Rnic(rnic::Error::Timeout { .. })) => {}
                other => return other,
            }
        }
    }

    /// Waits for a note, over completions of other work.
    pub fn listen(&self, end: &mut Endpoint) -> Result<Note, ToolError> {
        loop {
            let done = end.completion()?;
            if let Some(note) = self.heard(end, &done)? {
                return Ok(note);
            }
        }
    }
}

/// Whether this completes a note that went out.
pub fn is_own_note(done: &WorkCompletion) -> bool {
    done.wr_id & NOTE_OUT == NOTE_OUT
}

/// The note that a receive at `at` of `memory` completed with.
pub fn read(memory: &MemoryRegion, at: usize, done: &WorkCompletion) -> Result<Note, ToolError> {
    let mut bytes = [0; NOTE];
    if done.status == WcStatus::Success && done.byte_len as usize == NOTE {
        memory.read(at, &mut bytes)?;
    }
    Note::decode(bytes).ok_or_else(|| {
        ToolError::Peer(format!(
            "the peer sent {} bytes that are no note of rnic-perf",
            done.byte_len
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_survives_its_encoding() {
        for note in [
            Note::Done { messages: 1 },
            Note::Credit { messages: 2 },
            Note::Verified { bytes: u64::MAX },
            Note::Corrupt { position: 3 },
            Note::Finished,
        ] {
            assert_eq!(Note::decode(note.encode()), Some(note));
        }
        assert_eq!(Note::decode([0; NOTE]), None);
    }
}
