//! The loop: turns of the bridge, sleep in between, signals, reports.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rnic_host::{Signal, Signals};
use rnic_steering::SteeringError;
use rnic_xsk::{Port, XskError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::capture::{Capture, CaptureError};
use super::carrier::{Carrier, CarrierOptions};
use super::config::Config;
use super::direction::Watch;
use super::report::{Format, Report};

/// A sleep that is shorter than this costs more than it saves.
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);
/// How long to wait for an interface that takes nothing.
const BACK_OFF: Duration = Duration::from_micros(50);
/// The longest sleep, when nothing is to be done.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How often progress is shown: on a terminal, elsewhere.
const PROGRESS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Ends after this time.
    pub duration: Option<Duration>,
    /// Prints counters this often.
    pub interval: Option<Duration>,
    pub format: Format,
    /// No progress.
    pub quiet: bool,
    /// Writes a capture, with at most so many bytes of each frame.
    pub capture: Option<(PathBuf, usize)>,
}

/// Why the link ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Both ends are one interface.
    #[error("{0} can't be both ends of the link: name two interfaces")]
    SameInterface(String),
    /// A tap could not be set.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// A socket could not be opened, or its interface is down or gone.
    #[error("{0}")]
    Xsk(XskError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
}

fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> RunError {
    move |error| RunError::System {
        what,
        source: error.into(),
    }
}

/// Opens the carrier and forwards until a signal (SIGINT, SIGTERM) or the time is up. Counters go
/// to standard output: at the end, at SIGUSR1, and at each interval.
///
/// # Errors
///
/// [`RunError`]; after the carrier was opened, counters are printed all the same.
pub fn run(
    carrier: &CarrierOptions,
    config: &Config,
    options: &RunOptions,
) -> Result<(), RunError> {
    let signals = Signals::block_with(&[Signal::SIGUSR1]).map_err(system("signals"))?;
    let mut link = Link {
        carrier: Carrier::open(carrier, config)?,
        seed: config.seed,
        start: Instant::now(),
        options,
        reports: options.interval,
        progress: Progress::new(options.quiet),
    };
    // Sleeps end when they should, and not up to 50 us later.
    let nanosecond = std::num::NonZeroU64::MIN;
    rustix::thread::set_current_timer_slack(Some(nanosecond)).map_err(system("timer slack"))?;
    let mut capture = match &options.capture {
        Some((path, snap)) => Some(Capture::create(
            path,
            *snap,
            [&carrier.left, &carrier.right],
        )?),
        None => None,
    };
    log::info!("ready: joined {}", link.carrier.describe());
    let ended = match &mut capture {
        Some(capture) => link.forward(capture, &signals),
        None => link.forward(&mut (), &signals),
    };
    link.progress.clear();
    link.report();
    let captured = capture.map_or(Ok(()), Capture::finish);
    ended?;
    Ok(captured?)
}

struct Link<'a> {
    carrier: Carrier,
    seed: u64,
    start: Instant,
    options: &'a RunOptions,
    /// When the next report is due.
    reports: Option<Duration>,
    progress: Progress,
}

impl Link<'_> {
    fn forward(&mut self, watch: &mut dyn Watch, signals: &Signals) -> Result<(), RunError> {
        loop {
            let now = self.start.elapsed();
            if self.carrier.bridge.turn(now, watch)? {
                // Signals and reports wait until there is a moment, or a second is over.
                if now < self.progress.next {
                    continue;
                }
            }
            match signals.take() {
                Some(Signal::SIGUSR1) => self.report(),
                Some(_) => return Ok(()),
                None => {}
            }
            if self.options.duration.is_some_and(|end| end <= now) {
                return Ok(());
            }
            self.speak(now);
            self.sleep(signals)?;
        }
    }

    /// Reports and progress whose time has come.
    fn speak(&mut self, now: Duration) {
        if let (Some(due), Some(interval)) = (self.reports, self.options.interval)
            && due <= now
        {
            self.report();
            self.reports = Some((due + interval).max(now));
        }
        if self.progress.next <= now {
            let bytes = self
                .carrier
                .bridge
                .directions()
                .each_ref()
                .map(|direction| {
                    let counters = direction.counters();
                    (counters.forwarded, counters.forwarded_bytes)
                });
            self.progress.show(now, bytes);
        }
    }

    fn sleep(&mut self, signals: &Signals) -> Result<(), RunError> {
        let bridge = &mut self.carrier.bridge;
        let mut until = self.start.elapsed() + LONGEST_SLEEP;
        if bridge.unsent() > 0 {
            until = self.start.elapsed() + BACK_OFF;
        }
        let times = [bridge.deadline(), self.reports, self.options.duration];
        for time in times.into_iter().flatten().chain([self.progress.next]) {
            until = until.min(time);
        }
        let timeout = until.saturating_sub(self.start.elapsed());
        if timeout < SHORTEST_SLEEP {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        bridge.prepare_sleep();
        let sockets = bridge.ports().filter_map(Port::poll_fd);
        let mut fds: Vec<PollFd<'_>> = sockets
            .chain([signals.as_fd()])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system("waiting for frames")(errno)),
        }
    }

    fn report(&mut self) {
        let report = Report::of(&mut self.carrier, self.seed, self.start.elapsed());
        let mut out = std::io::stdout().lock();
        // A closed standard output must not end the link.
        let _ = out.write_all(report.show(self.options.format).as_bytes());
        let _ = out.flush();
    }
}

/// A line on standard error: rewritten in place on a terminal, a line now and then elsewhere.
struct Progress {
    next: Duration,
    shown: (Duration, [(u64, u64); 2]),
    terminal: bool,
    quiet: bool,
}

impl Progress {
    fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            next: PROGRESS[usize::from(!terminal)],
            shown: Default::default(),
            terminal,
            quiet,
        }
    }

    fn show(&mut self, now: Duration, forwarded: [(u64, u64); 2]) {
        self.next = now + PROGRESS[usize::from(!self.terminal)];
        let (before, was) = std::mem::replace(&mut self.shown, (now, forwarded));
        if self.quiet || was == forwarded {
            return;
        }
        let seconds = (now - before).as_secs_f64();
        let mut line = format!("{:7.1} s", now.as_secs_f64());
        for (toward, ((packets, bytes), (packets_were, bytes_were))) in
            ["right", "left"].iter().zip(forwarded.iter().zip(was))
        {
            let rate = (bytes - bytes_were) as f64 * 8e-6 / seconds;
            let packets = (packets - packets_were) as f64 / seconds;
            line += &format!("  to {toward} {rate:8.2} Mbit/s {packets:8.0} packets/s");
        }
        let (begin, end) = if self.terminal {
            ("\r", "")
        } else {
            ("", "\n")
        };
        let _ = write!(std::io::stderr(), "{begin}{line}{end}");
    }

    fn clear(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(std::io::stderr(), "\r{:100}\r", "");
        }
    }
}
