//! Control chunks that wait for the next packet.

use crate::cause::Cause;
use crate::chunk::{Chunk, write_error};
use crate::packet::HEADER_LEN;
use crate::tlv::{HEAD_LEN, NoRoom, Output};

/// Bytes that errors leave for the chunks that a packet may have beside them: a SACK, a SHUTDOWN, a COOKIE ACK.
const SPARE: usize = 64;

/// The shortest cause that is worth an ERROR: its head, and the head of what it quotes.
const QUOTED_MIN: usize = 2 * HEAD_LEN;

/// What waits. Its memory is as large as a packet: what does not fit is not said.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) init: bool,
    pub(super) cookie_echo: bool,
    pub(super) cookie_ack: bool,
    pub(super) shutdown: bool,
    pub(super) shutdown_ack: bool,
    /// HEARTBEAT ACKs and ERRORs, written.
    answers: Vec<u8>,
    has_errors: bool,
    room: usize,
}

impl Pending {
    pub(super) fn new(packet_max: usize) -> Self {
        let room = packet_max - HEADER_LEN;
        Self {
            init: false,
            cookie_echo: false,
            cookie_ack: false,
            shutdown: false,
            shutdown_ack: false,
            answers: Vec::with_capacity(room),
            has_errors: false,
            room,
        }
    }

    /// Packets have another size from now on, not above the first one. Answers that fit none any more would hold up
    /// all that is behind them: they are not said.
    pub(super) fn resize(&mut self, packet_max: usize) {
        self.room = packet_max - HEADER_LEN;
        if self.answers.len() > self.room {
            self.answered();
        }
    }

    pub(super) fn any(&self) -> bool {
        self.has_flag() || !self.answers.is_empty()
    }

    fn has_flag(&self) -> bool {
        let flags = [
            self.init,
            self.cookie_echo,
            self.cookie_ack,
            self.shutdown,
            self.shutdown_ack,
        ];
        flags.contains(&true)
    }

    pub(super) fn answers(&self) -> &[u8] {
        &self.answers
    }

    pub(super) fn answered(&mut self) {
        self.answers.clear();
        self.has_errors = false;
    }

    /// All of it may go to an address that is not confirmed (section 5.4).
    pub(super) fn has_only_heartbeat_acks(&self) -> bool {
        !self.has_flag() && !self.has_errors
    }

    pub(super) fn heartbeat_ack(&mut self, info: &[u8]) {
        let chunk = Chunk::HeartbeatAck(info);
        self.put(self.room, |output| chunk.write(output));
    }

    /// An ERROR with this cause, which quotes as much as there is room for.
    pub(super) fn error(&mut self, cause: &Cause<'_>) {
        let limit = self.room.saturating_sub(SPARE);
        let room = limit.saturating_sub(self.answers.len() + HEAD_LEN);
        // Less than this says nothing of what is wrong.
        if room >= QUOTED_MIN {
            self.has_errors = true;
            self.put(limit, |output| write_error(&cause.within(room), output));
        }
    }

    /// Appends a chunk if all answers stay below `limit`.
    fn put(&mut self, limit: usize, write: impl FnOnce(&mut Output<'_>) -> Result<(), NoRoom>) {
        let before = self.answers.len();
        if before >= limit {
            return;
        }
        self.answers.resize(limit, 0);
        let mut output = Output::new(&mut self.answers[before..]);
        let written = write(&mut output).map_or(0, |()| output.len());
        self.answers.truncate(before + written);
    }
}
