//! A run that is under way: a client, the server that it works with, and the daemons of both, if any.

use std::time::{Duration, Instant};

use super::rnic::Daemons;
use super::testbed::ended;
use super::{Figures, interrupt};
use crate::lab::{Finished, Process, Signal};

/// Between two looks whether a client has stopped itself.
const LOOK: Duration = Duration::from_micros(500);

/// What a run is to measure.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub duration: Duration,
    /// In intervals of so long, if there are others: the client stops itself before each.
    pub turn: Option<Duration>,
}

impl Span {
    /// All at once.
    #[must_use]
    pub fn whole(duration: Duration) -> Self {
        Self {
            duration,
            turn: None,
        }
    }

    /// As options of `rnic-perf`.
    pub(super) fn options(self) -> Vec<String> {
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let mut options = vec!["--duration".into(), seconds(self.duration)];
        if let Some(turn) = self.turn {
            options.extend(["--turn".into(), seconds(turn)]);
        }
        options
    }
}

/// Finds the figures in what the client and the server said.
pub type Read = fn(&Finished, Option<&Finished>) -> Result<Figures, String>;

#[derive(Debug)]
pub struct Running {
    client: Process,
    server: Option<Process>,
    daemons: Option<Daemons>,
    read: Read,
}

impl Running {
    /// `read` finds the figures.
    pub(super) fn new(client: Process, server: Process, read: Read) -> Self {
        Self {
            server: Some(server),
            ..Self::alone(client, read)
        }
    }

    /// Both ends in one process.
    pub(super) fn alone(client: Process, read: Read) -> Self {
        Self {
            client,
            server: None,
            daemons: None,
            read,
        }
    }

    /// With daemons that end after both.
    pub(super) fn over(mut self, daemons: Daemons) -> Self {
        self.daemons = Some(daemons);
        self
    }

    /// Waits for its end, for so long at most.
    ///
    /// # Errors
    ///
    /// What failed, with what the program said.
    pub(super) fn ended(self, limit: Duration) -> Result<Figures, String> {
        let client = ended(self.client, limit)?;
        let server = self.server.map(|server| ended(server, limit)).transpose()?;
        if let Some(daemons) = self.daemons {
            daemons.stop(limit)?;
        }
        (self.read)(&client, server.as_ref())
    }

    /// Stops both ends where they are.
    pub(super) fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets both ends go on.
    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        for process in self.server.iter_mut().chain([&mut self.client]) {
            process.signal(signal);
        }
    }

    /// Waits until the client has stopped itself, for so long at most, and stops what has not: the server,
    /// or all of a run that comes to its end. Daemons, which sleep then, are left alone. Whether the run
    /// goes on.
    pub(super) fn hands_over(&mut self, limit: Duration) -> bool {
        let begin = Instant::now();
        let mut stopped = false;
        while !stopped && !self.is_over() && begin.elapsed() < limit && !interrupt::came() {
            std::thread::sleep(LOOK);
            stopped = self.client.has_stopped();
        }
        self.pause();
        stopped
    }

    /// Whether an end has come to its end, so that only the other's is to be waited for.
    pub(super) fn is_over(&mut self) -> bool {
        let mut processes = self.server.iter_mut().chain([&mut self.client]);
        !processes.all(|process| process.running())
    }
}
