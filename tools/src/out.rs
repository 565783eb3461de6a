//! What the tools say on standard output and standard error. `println!` panics when the reader has gone
//! (`rnicctl connections | head`); a Unix tool ends quietly then, with the status of SIGPIPE.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// The exit status that a shell shows for a program that SIGPIPE (13) has ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// Prints a line to standard output. The program ends when that can't be done: quietly when nobody
/// reads any more, else with the reason and status 1.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::print(format_args!($($text)*), "\n") };
}

/// The same without the line's end.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::out::print(format_args!($($text)*), "") };
}

/// Prints a line to standard error, if anybody reads it.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::print_error(format_args!($($text)*)) };
}

#[doc(hidden)]
pub fn print(text: Arguments<'_>, end: &str) {
    let mut out = std::io::stdout().lock();
    // A line's end also flushes; what has none is flushed here.
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    let Err(error) = written else { return };
    drop(out);
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    print_error(format_args!("writing to standard output: {error}"));
    std::process::exit(1);
}

#[doc(hidden)]
pub fn print_error(text: Arguments<'_>) {
    // Nothing is left to tell it to.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
