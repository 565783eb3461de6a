//! Lines for systemd's journal: each begins with its priority (sd-daemon(3)), by which the journal is filtered.
//! A line that goes anywhere else has none.

use log::Level;
use rustix::fs::fstat;

/// The variable in which systemd names the stream that the journal reads, by device and inode.
const VARIABLE: &str = "JOURNAL_STREAM";

/// Where lines on standard error go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Journal,
    /// To a terminal, a file, another program.
    Other,
}

impl Reader {
    /// That of standard error. The variable alone says nothing: it is inherited, also by who redirects.
    pub(crate) fn of_stderr() -> Self {
        let stream = fstat(rustix::stdio::stderr());
        let named = std::env::var(VARIABLE).unwrap_or_default();
        match stream {
            Ok(stream) if named == format!("{}:{}", stream.st_dev, stream.st_ino) => Self::Journal,
            _ => Self::Other,
        }
    }

    /// What a line of this level begins with.
    pub(crate) fn priority(self, level: Level) -> &'static str {
        match (self, level) {
            (Self::Other, _) => "",
            (Self::Journal, Level::Error) => "<3>",
            (Self::Journal, Level::Warn) => "<4>",
            (Self::Journal, Level::Info) => "<6>",
            (Self::Journal, Level::Debug | Level::Trace) => "<7>",
        }
    }

    /// Prints what ends the daemon: an error, in one line or several.
    pub(crate) fn complain(self, text: &str) {
        for line in text.lines() {
            eprintln!("{}{line}", self.priority(Level::Error));
        }
    }
}
