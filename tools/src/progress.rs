//! A progress line on standard error: rewritten in place on a terminal, a line a second elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::size;

/// Shows how far a transfer is.
#[derive(Debug)]
pub struct Progress {
    what: String,
    goal: Option<u64>,
    started: Instant,
    shown: Instant,
    shown_bytes: u64,
    terminal: bool,
    quiet: bool,
}

impl Progress {
    /// `goal` is the number of bytes to come, when it is known.
    pub fn new(what: impl Into<String>, goal: Option<u64>, quiet: bool) -> Self {
        let now = Instant::now();
        let terminal = stderr().is_terminal();
        Self {
            what: what.into(),
            goal,
            started: now,
            shown: now,
            shown_bytes: 0,
            terminal,
            quiet,
        }
    }

    /// Tells the bytes done so far; cheap enough for every batch of completions.
    pub fn update(&mut self, bytes: u64) {
        if self.quiet {
            return;
        }
        let now = Instant::now();
        let every = Duration::from_millis(if self.terminal { 200 } else { 1000 });
        let since = now - self.shown;
        if since < every {
            return;
        }
        let gbits = (bytes - self.shown_bytes) as f64 * 8e-9 / since.as_secs_f64();
        let elapsed = (now - self.started).as_secs_f64();
        let part = match self.goal {
            Some(goal) if goal > 0 => format!(" {:5.1} %", 100.0 * bytes as f64 / goal as f64),
            _ => String::new(),
        };
        let (begin, end) = if self.terminal {
            ("\r", "  ")
        } else {
            ("", "\n")
        };
        // A closed standard error must not end the measurement.
        let _ = write!(
            stderr(),
            "{begin}{}: {elapsed:5.1} s{part} {:>10} {gbits:6.2} Gbit/s{end}",
            self.what,
            size::show(bytes),
        );
        let _ = stderr().flush();
        self.shown = now;
        self.shown_bytes = bytes;
    }

    /// Clears the line on a terminal.
    pub fn finish(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(stderr(), "\r{:79}\r", "");
        }
    }
}
