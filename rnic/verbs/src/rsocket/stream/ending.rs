//! The end of a stream: by the program, by the peer, or because something failed.

use std::time::Duration;

use rnic::{ConnectionEvent, DisconnectReason};
use rustix::io::Errno;

use super::{End, Stream};
use crate::cm::net::log_end;
use crate::rsocket::wire::Message;

impl Stream {
    /// Ends one direction or both.
    pub(crate) fn shut_down(&mut self, reads: bool, writes: bool) {
        let wrote = self.writes;
        self.reads &= !reads;
        self.writes &= !writes;
        if self.end.is_some() {
            return;
        }
        let over = !self.writes && (!self.reads || !self.peer_writes);
        let farewell = match (over, wrote && writes) {
            (true, _) => Message::Disconnect,
            (false, true) => Message::Shutdown,
            (false, false) => return,
        };
        self.farewell = Some(farewell);
        self.progress();
        if over {
            self.finish();
        }
    }

    /// Ends both directions, and waits at most `linger` for that: data may still be on its way. A peer that
    /// is silent is not waited for longer, and of what has failed there is nothing to wait for.
    pub(crate) fn close(&mut self, linger: Duration) {
        self.shut_down(true, true);
        if let Some(End::Failed(_)) = self.end {
            return;
        }
        if let Err(error) = self.qp.disconnected().wait(linger) {
            log::debug!("an rsocket is closed before its end: {error}");
        }
    }

    /// The end in order: what was posted goes out, and then the connection ends.
    fn finish(&mut self) {
        self.end_with(End::Closed);
        if let Err(error) = self.qp.disconnect().detach() {
            log::debug!("an rsocket's connection has ended already: {error}");
        }
    }

    pub(super) fn end_with(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    pub(super) fn fail(&mut self, errno: Errno) {
        if self.end.is_none() {
            self.end_with(End::Failed(errno));
            if let Err(error) = self.qp.abort() {
                log::debug!("an rsocket's connection has ended already: {error}");
            }
        }
    }

    /// Takes up what has happened to the connection since it was made.
    pub(crate) fn take_events(&mut self) {
        loop {
            match self.qp.take_event() {
                Ok(None) => return,
                Ok(Some(event)) => self.connection_event(Ok(event)),
                Err(error) => return self.connection_event(Err(error)),
            }
        }
    }

    fn connection_event(&mut self, event: Result<ConnectionEvent, rnic::Error>) {
        // What came before the end is still there to be read.
        self.progress();
        let end = match event {
            Ok(ConnectionEvent::Established(_)) => return,
            Ok(ConnectionEvent::Disconnected { reason, message }) => {
                log_end("an rsocket's connection", reason, &message);
                match reason {
                    DisconnectReason::Graceful => End::Closed,
                    DisconnectReason::TimedOut => End::Failed(Errno::TIMEDOUT),
                    _ => End::Failed(Errno::CONNRESET),
                }
            }
            Ok(other) => {
                log::debug!("an rsocket's connection ended: {other:?}");
                End::Failed(Errno::CONNRESET)
            }
            Err(error) => {
                log::info!("an rsocket's RNIC is gone: {error}");
                End::Failed(Errno::IO)
            }
        };
        self.end_with(end);
    }
}
