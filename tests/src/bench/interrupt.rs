//! SIGINT and SIGTERM: the run at hand is cut short, what there is is written, the namespaces go.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

static CAME: AtomicBool = AtomicBool::new(false);

#[must_use]
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Waits for them in a thread of its own from now on. To be called before there is another thread;
/// programs that are started later have both signals blocked, too.
///
/// # Errors
///
/// When the kernel refuses.
pub fn watch() -> std::io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let descriptor = SignalFd::new(&signals)?;
    std::thread::spawn(move || {
        while !matches!(descriptor.read_signal(), Ok(Some(_))) {}
        CAME.store(true, Ordering::Relaxed);
    });
    Ok(())
}
