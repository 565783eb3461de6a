//! Where text for people goes, again and again: a terminal is redrawn, anything else gets one block after the
//! other.
//!
//! A terminal may be left at any time: by q, SIGINT (Ctrl-C) and SIGTERM, also while an RNIC does not answer. So
//! a thread of its own waits for these, gives the terminal back as it was, and ends the program.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rnic_host::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::endpoint::ToolError;

/// Characters of a line where the output is no terminal.
pub const COLUMNS: usize = 80;

/// Columns and rows of the terminal that standard output is, if it is one.
#[must_use]
pub fn terminal_size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    // One that does not know its size says 0.
    let known = size.ws_col > 0 && size.ws_row > 0;
    known.then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Characters of a line: of the terminal, else [`COLUMNS`].
#[must_use]
pub fn columns() -> usize {
    terminal_size().map_or(COLUMNS, |(columns, _)| columns)
}

/// Standard output, for a text that is shown again and again.
#[derive(Debug)]
pub struct Screen {
    terminal: Option<Terminal>,
}

impl Screen {
    /// Standard output. Call it before any other thread exists.
    ///
    /// # Errors
    ///
    /// When signals can't be waited for.
    pub fn open() -> Result<Self, ToolError> {
        let terminal = match std::io::stdout().is_terminal() {
            true => Some(Terminal::open()?),
            false => None,
        };
        Ok(Self { terminal })
    }

    /// Shows a text of whole lines. A terminal shows nothing else, and as much of it as there is room for.
    pub fn show(&mut self, text: &str) {
        match &self.terminal {
            Some(_) => crate::out!("{}", redrawn(text, terminal_size())),
            None => crate::outln!("{text}"),
        }
    }
}

/// The text in place of all that a terminal shows.
fn redrawn(text: &str, size: Option<(usize, usize)>) -> String {
    const HOME: &str = "\x1b[H";
    const CLEAR_LINE: &str = "\x1b[K";
    const CLEAR_BELOW: &str = "\x1b[J";
    let (columns, rows) = size.unwrap_or((COLUMNS, usize::MAX));
    let all: Vec<&str> = text.lines().collect();
    // The last row is the cursor's.
    let room = rows.saturating_sub(1).max(1);
    let kept = match all.len() <= room {
        true => all.len(),
        false => room - 1,
    };
    let mut drawn = HOME.to_owned();
    let more = (kept < all.len()).then(|| format!("({} more lines)", all.len() - kept));
    for line in all[..kept].iter().copied().chain(more.as_deref()) {
        // Cleared first: after a line of all columns the cursor is still on the last of them.
        drawn += CLEAR_LINE;
        drawn.extend(line.chars().take(columns));
        drawn.push('\n');
    }
    drawn + CLEAR_BELOW
}

/// A terminal whose keys come at once and are not shown.
#[derive(Debug)]
struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    fn open() -> Result<Self, ToolError> {
        let signals = Signals::block().map_err(|errno| ToolError::Io {
            what: "waiting for SIGINT (signalfd)".into(),
            source: errno.into(),
        })?;
        let before = std::io::stdin()
            .is_terminal()
            .then(|| tcgetattr(std::io::stdin()).ok())
            .flatten();
        let terminal = Self { before };
        if let Some(before) = &terminal.before {
            let mut keys = before.clone();
            keys.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            set(&keys);
        }
        let before = terminal.before.clone();
        std::thread::spawn(move || {
            wait_for_end(&signals, before.is_some());
            if let Some(before) = &before {
                set(before);
            }
            std::process::exit(0);
        });
        crate::out!("\x1b[2J");
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set(before);
        }
    }
}

fn set(termios: &Termios) {
    // What can't be set stays as it is.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, termios);
}

/// Returns when somebody wants the program to end.
fn wait_for_end(signals: &Signals, keys: bool) {
    let stdin = std::io::stdin();
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if keys {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let pressed = keys && !fds[1].revents().is_empty();
        if signals.take().is_some() {
            return;
        }
        let mut key = [0];
        if pressed && !matches!(rustix::io::read(&stdin, &mut key), Ok(1) if key != *b"q") {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_what_it_has_room_for_and_says_how_much_is_left() {
        let text = "one\ntwo is long\nthree\nfour\n";
        let drawn = redrawn(text, Some((6, 4)));
        assert_eq!(drawn, "\x1b[H\x1b[Kone\n\x1b[Ktwo is\n\x1b[K(2 mor\n\x1b[J");
        let drawn = redrawn(text, Some((80, 5)));
        assert!(
            drawn.contains("four") && !drawn.contains("more"),
            "{drawn:?}"
        );
    }
}
