//! Bounds what is logged for one cause, so that a client or a peer that does something in a loop fills
//! no log, and hides no other cause's lines.
//!
//! A cause is a place in the code that logs. Each may have [`LINES`] lines a second; of the rest there
//! is one line that says how many they were. Every line of the daemon passes here: none has to be
//! marked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};

/// Lines of one cause in one [`WINDOW`].
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// A logger that is given only so many lines of each cause.
#[derive(Debug)]
pub(crate) struct Limited<L> {
    logger: L,
    causes: Mutex<Causes>,
}

/// At most as many as there are places that log.
#[derive(Debug, Default)]
struct Causes {
    all: HashMap<(&'static str, u32), Cause>,
    /// Of all of them, lines that were not logged.
    left_out: u64,
}

#[derive(Debug)]
struct Cause {
    level: Level,
    /// When its window began.
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// What is to be said of lines that were left out.
struct LeftOut {
    module: &'static str,
    level: Level,
    lines: u64,
}

impl<L: Log> Limited<L> {
    pub(crate) fn new(logger: L) -> Self {
        Self {
            logger,
            causes: Mutex::default(),
        }
    }

    fn log_at(&self, now: Instant, record: &Record<'_>) {
        let (left_out, logged) = {
            let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
            let left_out = causes.take_left_out(|cause| cause.is_over(now));
            (left_out, causes.take(now, record))
        };
        // Whoever else logs does not wait for this.
        self.tell(left_out);
        if logged {
            self.logger.log(record);
        }
    }

    fn tell(&self, left_out: Vec<LeftOut>) {
        for LeftOut {
            module,
            level,
            lines,
        } in left_out
        {
            self.logger.log(
                &Record::builder()
                    .level(level)
                    .target(module)
                    .module_path_static(Some(module))
                    .args(format_args!(
                        "{lines} more lines of one kind were left out: more than {LINES} came in a second"
                    ))
                    .build(),
            );
        }
    }
}

impl Causes {
    /// Whether a line is one of those that its cause may have.
    fn take(&mut self, now: Instant, record: &Record<'_>) -> bool {
        // What has no place is not ours.
        let (Some(module), Some(line)) = (record.module_path_static(), record.line()) else {
            return true;
        };
        let cause = self.all.entry((module, line)).or_insert(Cause {
            level: record.level(),
            since: now,
            lines: 0,
            left_out: 0,
        });
        if cause.is_over(now) {
            (cause.since, cause.lines) = (now, 0);
        }
        if cause.lines < LINES {
            cause.lines += 1;
            return true;
        }
        cause.left_out += 1;
        self.left_out += 1;
        false
    }

    fn take_left_out(&mut self, of: impl Fn(&Cause) -> bool) -> Vec<LeftOut> {
        if self.left_out == 0 {
            return Vec::new();
        }
        let mut found = Vec::new();
        for ((module, _), cause) in &mut self.all {
            if cause.left_out > 0 && of(cause) {
                let lines = std::mem::take(&mut cause.left_out);
                self.left_out -= lines;
                found.push(LeftOut {
                    module,
                    level: cause.level,
                    lines,
                });
            }
        }
        found
    }
}

impl Cause {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

impl<L: Log> Log for Limited<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.logger.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        self.log_at(Instant::now(), record);
    }

    /// Tells of all that was left out.
    fn flush(&self) {
        let left_out = {
            let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
            causes.take_left_out(|_| true)
        };
        self.tell(left_out);
        self.logger.flush();
    }
}

#[cfg(test)]
mod tests;
