//! What goes wrong is told on standard error: programs show an error's number at most. The environment's
//! `RNIC_LOG` says how much: `off`, `error`, `warn` (the default), `info`, `debug`.

use std::io::Write;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // `eprintln!` panics where standard error can't be written. Then there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "rnic: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Does nothing where the program has a logger of its own.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&Stderr).is_ok() {
            let level = std::env::var("RNIC_LOG").ok();
            let level = level.and_then(|level| level.parse().ok());
            log::set_max_level(level.unwrap_or(LevelFilter::Warn));
        }
    });
}
