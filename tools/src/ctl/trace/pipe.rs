//! Standard output as a pipe whose reader may neither read nor close it: a write waits for the reader, and for
//! the wish to end.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use rnic_host::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// How long a reader may read nothing once a signal came.
const GRACE: Duration = Duration::from_millis(500);
/// A pipe that poll(2) calls writable takes so many bytes without a wait: PIPE_BUF of pipe(7). The pipe is not
/// made non-blocking, because another writer to it would be surprised.
const WRITABLE: usize = 4096;

/// SIGINT and SIGTERM, for the loop of a capture and for what it writes to.
#[derive(Clone, Debug)]
pub struct Ending(Rc<Wish>);

#[derive(Debug)]
struct Wish {
    signals: Signals,
    /// Whether a signal was taken.
    came: Cell<bool>,
}

impl Ending {
    /// Blocks the signals, as [`Signals::block`] does.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn block() -> Result<Self, Errno> {
        Ok(Self(Rc::new(Wish {
            signals: Signals::block()?,
            came: Cell::new(false),
        })))
    }

    /// The signal that came, if one did.
    #[must_use]
    pub fn take(&self) -> Option<Signal> {
        let taken = self.0.signals.take();
        self.0.came.set(self.0.came.get() || taken.is_some());
        taken
    }
}

/// The end of a pipe that is written to.
#[derive(Debug)]
pub(super) struct Pipe {
    file: File,
    ending: Ending,
    /// The reader had its time.
    given_up: bool,
}

impl Pipe {
    /// Standard output.
    pub(super) fn stdout(ending: Ending) -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self::new(file, ending))
    }

    fn new(file: File, ending: Ending) -> Self {
        Self {
            file,
            ending,
            given_up: false,
        }
    }

    /// Waits until the pipe can be written to: for as long as it takes, but once a signal came for [`GRACE`].
    fn is_writable(&self) -> io::Result<bool> {
        let wish = &*self.ending.0;
        let file = PollFd::new(&self.file, PollFlags::OUT);
        if !wish.came.get() {
            // The signal is left for the capture's loop to take.
            let mut fds = [file.clone(), PollFd::new(&wish.signals, PollFlags::IN)];
            retry_on_intr(|| poll(&mut fds, None))?;
            if !fds[0].revents().is_empty() {
                return Ok(true);
            }
        }
        let grace = Timespec::try_from(GRACE).map_err(io::Error::other)?;
        Ok(retry_on_intr(|| poll(&mut [file.clone()], Some(&grace)))? > 0)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.given_up = self.given_up || !self.is_writable()?;
        if self.given_up {
            let why = format!(
                "a signal came, and the reader of the pipe read nothing for {GRACE:?} more: the capture is cut off"
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.file.write(&bytes[..bytes.len().min(WRITABLE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use nix::sys::signal::raise;

    use super::*;

    /// More than a pipe holds.
    const MUCH: usize = 1 << 20;

    fn pipe() -> (PipeReader, Pipe, Ending) {
        let (reader, writer) = io::pipe().unwrap();
        let ending = Ending::block().unwrap();
        let pipe = Pipe::new(File::from(OwnedFd::from(writer)), ending.clone());
        (reader, pipe, ending)
    }

    #[test]
    fn a_signal_ends_a_write_to_a_reader_that_does_not_read() {
        let (_reader, mut pipe, ending) = pipe();
        raise(Signal::SIGTERM).unwrap();
        let began = Instant::now();
        let error = pipe.write_all(&[0; MUCH]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(began.elapsed() >= GRACE && began.elapsed() < 2 * GRACE);
        assert_eq!(ending.take(), Some(Signal::SIGTERM), "it is the loop's");
        // What follows does not wait again.
        let began = Instant::now();
        let _ = pipe.write_all(&[0]).unwrap_err();
        assert!(began.elapsed() < GRACE / 2);
    }

    #[test]
    fn a_signal_that_the_loop_took_bounds_writes_too() {
        let (_reader, mut pipe, ending) = pipe();
        raise(Signal::SIGINT).unwrap();
        assert_eq!(ending.take(), Some(Signal::SIGINT));
        let error = pipe.write_all(&[0; MUCH]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_slow_reader_gets_all_also_after_a_signal_and_one_that_is_gone_is_told() {
        let (mut reader, mut pipe, _) = pipe();
        let slow = std::thread::spawn(move || {
            let mut bytes = vec![0; MUCH / 8];
            for _ in 0..8 {
                std::thread::sleep(GRACE / 5);
                reader.read_exact(&mut bytes).unwrap();
            }
        });
        raise(Signal::SIGINT).unwrap();
        pipe.write_all(&[0; MUCH]).unwrap();
        slow.join().unwrap();
        let error = pipe.write_all(&[0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
    }
}
