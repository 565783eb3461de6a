//! Threads that take none of the program's signals.
//!
//! A program that takes a signal by signalfd(2) or sigwait(3) blocks it in its own threads. It knows nothing of
//! ours, and where one of them leaves the signal open its default action ends the program.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

/// What the kernel sends to the thread that did something wrong. Blocked, these would end the process.
const OF_THE_THREAD: [Signal; 6] = [
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// Starts a thread in which all signals are blocked but those that its own faults bring.
///
/// # Errors
///
/// The kernel's.
pub fn spawn<T: Send + 'static>(
    builder: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::now()?;
    #[allow(clippy::disallowed_methods)]
    builder.spawn(work)
}

/// The same of a scope.
///
/// # Errors
///
/// The kernel's.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = Blocked::now()?;
    #[allow(clippy::disallowed_methods)]
    builder.spawn_scoped(scope, work)
}

/// While it lives the calling thread has signals blocked, and a thread that it starts begins with that.
struct Blocked(SigSet);

impl Blocked {
    fn now() -> io::Result<Self> {
        let mut signals = SigSet::all();
        for signal in OF_THE_THREAD {
            signals.remove(signal);
        }
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
        Ok(Self(before))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It fails for an unknown way to change the mask only.
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_signals_to_the_program_and_keeps_those_of_its_own_faults() {
        let before = SigSet::thread_get_mask().unwrap();
        let masks = [
            spawn(Builder::new(), || SigSet::thread_get_mask().unwrap())
                .unwrap()
                .join()
                .unwrap(),
            std::thread::scope(|scope| {
                spawn_scoped(Builder::new(), scope, || SigSet::thread_get_mask().unwrap())
                    .unwrap()
                    .join()
                    .unwrap()
            }),
        ];
        for mask in masks {
            for signal in Signal::iterator() {
                let never = matches!(signal, Signal::SIGKILL | Signal::SIGSTOP);
                let own = OF_THE_THREAD.contains(&signal);
                assert_eq!(mask.contains(signal), !never && !own, "{signal}");
            }
        }
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
