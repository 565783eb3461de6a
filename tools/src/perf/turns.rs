//! A program's turns, where several have the machine one after the other.
//!
//! Before its first turn, and after each other but the last, it stops itself (SIGSTOP) until whoever
//! started it lets it go on (SIGCONT). It does so when all that it has sent has arrived: nothing of it is
//! under way while others have their turns, no timer runs out, and that time is not its own.
//!
//! A turn begins with a part that does not count, in which the caches fill again with what the others
//! have displaced.

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

use crate::endpoint::ToolError;

/// The part of a turn that does not count, of the one that does.
const WARMING: u32 = 3;

/// How long it has had the machine, and for how long it still has.
#[derive(Debug)]
pub struct Turns {
    /// None: it has it all the time.
    length: Option<Duration>,
    /// When this part of the turn began.
    since: Instant,
    /// The part that does not count.
    warming: bool,
    /// Of all turns before.
    before: Duration,
}

impl Turns {
    /// The first one. Those with a length begin when somebody says so.
    ///
    /// # Errors
    ///
    /// When the kernel does not let the program stop itself.
    pub fn begin(length: Option<Duration>) -> Result<Self, ToolError> {
        let mut turns = Self {
            length,
            since: Instant::now(),
            warming: false,
            before: Duration::ZERO,
        };
        if length.is_some() {
            turns.stop()?;
        }
        Ok(turns)
    }

    /// Whether what is done now counts.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.warming
    }

    /// Whether this part of the turn is over: once all has arrived, [`Self::go_on`].
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        let part = |length: Duration| match self.warming {
            true => length / WARMING,
            false => length,
        };
        self.length
            .is_some_and(|length| now - self.since >= part(length))
    }

    /// How long this and all turns before it are, without what does not count.
    #[must_use]
    pub fn worked(&self, now: Instant) -> Duration {
        match self.warming {
            true => self.before,
            false => self.before + (now - self.since),
        }
    }

    /// All has arrived: goes on to the part that counts, or lets others have their turns. What comes is
    /// when the next part began.
    ///
    /// # Errors
    ///
    /// When the kernel does not let the program stop itself.
    pub fn go_on(&mut self) -> Result<Instant, ToolError> {
        let now = Instant::now();
        if self.warming {
            (self.warming, self.since) = (false, now);
        } else {
            self.before = self.worked(now);
            self.stop()?;
        }
        Ok(self.since)
    }

    fn stop(&mut self) -> Result<(), ToolError> {
        kill_process(getpid(), Signal::STOP).map_err(|errno| ToolError::Io {
            what: "stopping until the next turn".into(),
            source: errno.into(),
        })?;
        (self.warming, self.since) = (true, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_the_machine_for_itself_has_one_turn_without_an_end() {
        let turns = Turns::begin(None).expect("nothing is asked of the kernel");
        let later = turns.since + Duration::from_secs(3600);
        assert!(!turns.is_over(later));
        assert_eq!(turns.worked(later), Duration::from_secs(3600));
    }

    #[test]
    fn a_turn_is_over_after_its_length_and_those_before_it_count() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let turns = Turns {
            length: Some(second),
            since: now,
            warming: false,
            before: 3 * second,
        };
        assert!(!turns.is_over(now + second / 2) && turns.is_over(now + second));
        assert_eq!(turns.worked(now + second / 2), 3 * second + second / 2);
    }

    #[test]
    fn the_first_part_of_a_turn_is_short_and_does_not_count() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let mut turns = Turns {
            length: Some(second),
            since: now,
            warming: true,
            before: 3 * second,
        };
        assert!(!turns.counts() && turns.is_over(now + second / WARMING));
        assert_eq!(turns.worked(now + second / 2), 3 * second);
        let began = turns.go_on().expect("nothing is asked of the kernel");
        assert!(turns.counts() && !turns.is_over(began + second / 2));
        assert_eq!(turns.worked(began), 3 * second);
    }
}
