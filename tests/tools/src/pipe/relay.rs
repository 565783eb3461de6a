//! The loop: frames in, bytes out, bytes in, frames out; and sleep when there is nothing to do.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rnic_host::{Signal, Signals};

use super::error::PipeError;
use super::input::Input;
use super::open::{Opened, RESOLVE_TIMEOUT, open};
use super::output::Output;
use super::settings::{Direction, Role, Settings};
use super::stats::Stats;
use super::tcp::Stage;
use super::wait::{Waits, wait};

/// Bytes read from standard input in one turn, so that frames don't wait for long.
const INPUT_PER_TURN: usize = 512 << 10;
/// How often figures that vary are noted.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most time spent in TIME-WAIT at the end, for a peer that missed our last acknowledgment. The
/// kernel answers it with a reset after that.
const LINGER_MAX: Duration = Duration::from_secs(3);
/// Turns in which a reset may leave.
const FAREWELL_TURNS: usize = 10;
/// Least time between two looks at ICMP errors, which anybody can send.
const ICMP_PAUSE: Duration = Duration::from_millis(5);
/// Turns between two looks at signals, and at input and output, while there is work.
const TURNS_PER_LOOK: u32 = 64;

/// How a run ended that was not in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions were closed in order.
    Closed,
    /// A signal ended it; the connection was reset.
    Signalled(Signal),
}

/// Everything that runs.
#[derive(Debug)]
pub struct Relay {
    settings: Settings,
    signals: Signals,
    parts: Opened,
    input: Input,
    output: Output,
    begun: Instant,
    established: Option<Instant>,
    ended: Option<Instant>,
    looked: Instant,
    icmp_after: Instant,
    turns: u32,
}

impl Relay {
    /// Opens the interface and begins to listen or connect. Call it before any other thread exists.
    ///
    /// # Errors
    ///
    /// See [`PipeError`].
    pub fn open(settings: Settings) -> Result<Self, PipeError> {
        let signals = Signals::block().map_err(|errno| PipeError::System {
            what: "a descriptor for signals",
            source: errno.into(),
        })?;
        let input = match settings.direction {
            Direction::ReceiveOnly => Input::nothing(),
            _ => Input::open().map_err(PipeError::Input)?,
        };
        let output = match settings.direction {
            Direction::SendOnly => Output::nothing(),
            _ => Output::open().map_err(PipeError::Output)?,
        };
        let parts = open(&settings)?;
        let begun = Instant::now();
        Ok(Self {
            settings,
            signals,
            parts,
            input,
            output,
            begun,
            established: None,
            ended: None,
            looked: begun,
            icmp_after: begun,
            turns: 0,
        })
    }

    /// Our end of the connection.
    pub fn local(&self) -> SocketAddr {
        self.parts.reservation.local()
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// See [`PipeError`].
    pub fn run(&mut self) -> Result<Outcome, PipeError> {
        let outcome = self.run_until_end();
        self.ended.get_or_insert_with(Instant::now);
        self.parts.tcp.look();
        if !matches!(outcome, Ok(Outcome::Closed)) {
            self.parts.tcp.abort();
        }
        self.farewell();
        outcome
    }

    pub fn stats(&self, ok: bool) -> Stats {
        let tcp = &self.parts.tcp;
        let established = self.established.unwrap_or(self.begun);
        let ended = self.ended.unwrap_or_else(Instant::now);
        let seconds = (ended - established).as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8e-9 / seconds.max(1e-9);
        Stats {
            ok,
            bytes_sent: tcp.sent(),
            bytes_received: tcp.received(),
            seconds,
            gbit_per_second_sent: rate(tcp.sent()),
            gbit_per_second_received: rate(tcp.received()),
            handshake_seconds: (established - self.begun).as_secs_f64(),
            mode: self.parts.mode.clone(),
            tcp: tcp.stats,
            link: self.parts.link.stats(),
        }
    }

    fn run_until_end(&mut self) -> Result<Outcome, PipeError> {
        loop {
            let worked = self.turn()?;
            if let Some(outcome) = self.judge()? {
                return Ok(outcome);
            }
            self.turns = self.turns.wrapping_add(1);
            let look = self.turns.is_multiple_of(TURNS_PER_LOOK);
            if look && self.looked.elapsed() > LOOK_EVERY {
                self.looked = Instant::now();
                self.parts.tcp.look();
            }
            if !worked && !self.settings.busy {
                self.wait(self.patience())?;
            } else if look {
                self.wait(Some(Duration::ZERO))?;
            } else {
                continue;
            }
            if let Some(signal) = self.signals.take() {
                return Ok(Outcome::Signalled(signal));
            }
        }
    }

    fn now(&self) -> userspace_net::Instant {
        userspace_net::Instant::ZERO + self.begun.elapsed()
    }

    /// Everything once. False when there was nothing to do.
    fn turn(&mut self) -> Result<bool, PipeError> {
        let now = self.now();
        // Whether they are is told by trying.
        self.input.ready();
        self.output.ready();
        let Opened {
            link,
            frames,
            tcp,
            host,
            ..
        } = &mut self.parts;
        let mut worked = link.take_completed(&mut tcp.stack, frames);
        worked |= link.receive(now, frames, |frames, paths, frame, parsed| {
            tcp.receive(now, frames, (paths, host), frame, parsed);
        });
        tcp.advance(now, frames, &mut link.paths);
        if std::mem::take(&mut tcp.unanswered) {
            self.ask_way();
        }
        let tcp = &self.parts.tcp;
        if tcp.stage == Stage::Open {
            self.established.get_or_insert_with(Instant::now);
        }
        worked |= self.write_output()?;
        worked |= self.read_input(now)?;
        let Opened {
            link, frames, tcp, ..
        } = &mut self.parts;
        worked |= link.transmit(now, &mut tcp.stack, frames);
        Ok(worked)
    }

    /// What came goes to standard output, as far as that takes it.
    fn write_output(&mut self) -> Result<bool, PipeError> {
        let Opened { frames, tcp, .. } = &mut self.parts;
        let mut worked = false;
        while tcp.available() > 0 {
            if tcp
                .read(frames, &mut self.output)
                .map_err(PipeError::Output)?
                == 0
            {
                break;
            }
            worked = true;
        }
        if tcp.peer_closed && tcp.available() == 0 {
            self.output.close();
        }
        Ok(worked)
    }

    /// Standard input goes to TCP, as far as that takes it.
    fn read_input(&mut self, now: userspace_net::Instant) -> Result<bool, PipeError> {
        let Opened { frames, tcp, .. } = &mut self.parts;
        if tcp.stage != Stage::Open {
            return Ok(false);
        }
        tcp.settle(now, frames);
        let mut taken = 0;
        while tcp.room() > 0 && taken < INPUT_PER_TURN {
            let bytes = tcp
                .write(now, frames, &mut self.input)
                .map_err(PipeError::Input)?;
            taken += bytes;
            if self.input.waits().is_some() {
                // What there is goes; it is the last for now.
                tcp.push(now, frames);
            }
            if bytes == 0 || self.input.waits().is_some() {
                break;
            }
        }
        let over = match self.settings.direction {
            Direction::ReceiveOnly => tcp.peer_closed,
            _ => self.input.ended(),
        };
        if over {
            tcp.close(now, frames);
        }
        Ok(taken > 0)
    }

    /// Whether it is over, and how.
    fn judge(&mut self) -> Result<Option<Outcome>, PipeError> {
        let now = self.now();
        let tcp = &mut self.parts.tcp;
        // What was received before the end is delivered first.
        let delivered = tcp.available() == 0;
        let (sent, received) = (tcp.sent(), tcp.received());
        match tcp.stage {
            Stage::Opening if self.begun.elapsed() >= self.settings.connect_timeout => {
                self.no_answer()
            }
            Stage::Opening | Stage::Open => Ok(None),
            Stage::Closed if delivered => {
                let ended = *self.ended.get_or_insert_with(Instant::now);
                let over = !tcp.lingers(now) || ended.elapsed() >= LINGER_MAX;
                Ok(over.then_some(Outcome::Closed))
            }
            Stage::Reset | Stage::TimedOut if delivered => match (tcp.tuple(), tcp.stage) {
                (None, _) => Ok(None),
                (Some(_), Stage::TimedOut) if self.established.is_none() => self.no_answer(),
                (Some(tuple), Stage::TimedOut) => {
                    Err(match self.parts.host.way(&tuple, RESOLVE_TIMEOUT) {
                        Ok(_) => PipeError::Silent {
                            tuple,
                            sent,
                            received,
                        },
                        Err(refusal) => PipeError::Cut {
                            tuple,
                            sent,
                            received,
                            refusal,
                        },
                    })
                }
                (Some(tuple), _) => Err(PipeError::Reset {
                    tuple,
                    sent,
                    received,
                }),
            },
            Stage::Refused => match self.settings.role {
                Role::Connect { remote, .. } => Err(PipeError::Refused { remote }),
                Role::Listen(_) => Ok(None),
            },
            Stage::Closed | Stage::Reset | Stage::TimedOut => Ok(None),
        }
    }

    fn no_answer(&self) -> Result<Option<Outcome>, PipeError> {
        let Role::Connect { remote, .. } = self.settings.role else {
            // A listener waits for as long as it takes.
            return Ok(None);
        };
        let seconds = self.begun.elapsed().as_secs();
        if let Some(tuple) = self.parts.tcp.tuple() {
            self.parts.host.way(&tuple, RESOLVE_TIMEOUT)?;
        }
        Err(PipeError::NoAnswer { remote, seconds })
    }

    /// The kernel makes sure of the neighbour, and says where frames have to go (R1 of RFC 9293
    /// section 3.8.3, MUST-20).
    fn ask_way(&mut self) {
        let Some(tuple) = self.parts.tcp.tuple() else {
            return;
        };
        match self.parts.host.way(&tuple, Duration::ZERO) {
            Ok(path) => self.parts.link.paths.moved(path),
            Err(refusal) => log::warn!("{refusal}; trying on"),
        }
    }

    /// How long nothing has to be done unless something comes.
    fn patience(&self) -> Option<Duration> {
        let tcp = &self.parts.tcp;
        let now = self.now();
        let mut patience = tcp
            .stack
            .next_deadline()
            .map(|at| at.saturating_duration_since(now));
        let mut at_most = |limit: Duration| {
            patience = Some(patience.map_or(limit, |patience| patience.min(limit)));
        };
        match tcp.stage {
            Stage::Opening if matches!(self.settings.role, Role::Connect { .. }) => {
                at_most(
                    self.settings
                        .connect_timeout
                        .saturating_sub(self.begun.elapsed()),
                );
            }
            Stage::Closed => at_most(LINGER_MAX / 100),
            _ => {}
        }
        let pause = self.icmp_after.saturating_duration_since(Instant::now());
        if !pause.is_zero() {
            at_most(pause);
        }
        patience
    }

    fn wait(&mut self, patience: Option<Duration>) -> Result<(), PipeError> {
        let unsent = self.parts.link.unsent();
        let tcp = &self.parts.tcp;
        // Bytes that nobody has room for are not waited for.
        let wanted = tcp.stage == Stage::Open && tcp.room() > 0;
        let quiet = Instant::now() < self.icmp_after;
        let waits = Waits {
            icmp: if quiet { &[] } else { &self.parts.icmp },
            input: self.input.waits().filter(|_| wanted),
            output: self.output.waits(),
        };
        self.parts.link.prepare_sleep(&mut self.parts.frames);
        let ports = self.parts.link.ports().iter().map(|port| port.fd());
        if wait(ports, unsent, self.signals.as_fd(), &waits, patience)? {
            self.read_icmp();
        }
        Ok(())
    }

    fn read_icmp(&mut self) {
        self.icmp_after = Instant::now() + ICMP_PAUSE;
        let now = self.now();
        let Opened {
            link,
            frames,
            tcp,
            icmp,
            ..
        } = &mut self.parts;
        for socket in icmp {
            socket.read(|report| {
                if let Some(report) = report {
                    tcp.icmp(now, &report, frames, &mut link.paths);
                }
            });
        }
    }

    /// Lets what is left to send (a reset, an acknowledgment) leave.
    fn farewell(&mut self) {
        let now = self.now();
        let Opened {
            link, frames, tcp, ..
        } = &mut self.parts;
        for _ in 0..FAREWELL_TURNS {
            link.transmit(now, &mut tcp.stack, frames);
            link.take_completed(&mut tcp.stack, frames);
            if !link.unsent() {
                break;
            }
        }
    }
}
