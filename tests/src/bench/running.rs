//! A run that is under way: a client, and the server that it works with.

use std::time::Duration;

use serde_json::Value;

use super::Figures;
use super::ground::ended;
use crate::lab::{Process, Signal};
use crate::tool;

/// What it has measured is in the client's report.
#[derive(Debug)]
pub struct Running {
    client: Process,
    server: Process,
    read: fn(&Value) -> Result<Figures, String>,
}

impl Running {
    /// `read` finds the figures in the client's report.
    pub(super) fn new(
        client: Process,
        server: Process,
        read: fn(&Value) -> Result<Figures, String>,
    ) -> Self {
        Self {
            client,
            server,
            read,
        }
    }

    /// Waits for its end, for so long at most.
    ///
    /// # Errors
    ///
    /// What failed, with what the program said.
    pub(super) fn ended(self, limit: Duration) -> Result<Figures, String> {
        let figures = (self.read)(&tool::try_report(&ended(self.client, limit)?)?)?;
        ended(self.server, limit)?;
        Ok(figures)
    }

    /// Stops both ends where they are.
    pub(super) fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets both ends go on.
    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Whether an end has come to its end, so that only the other's is to be waited for.
    pub(super) fn is_over(&mut self) -> bool {
        !(self.client.running() && self.server.running())
    }

    fn signal(&mut self, signal: Signal) {
        for process in [&mut self.server, &mut self.client] {
            process.signal(signal);
        }
    }
}
