//! The smallest executor: one future, this thread.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::wait::Deadline;

/// Runs a future to its end in the calling thread, which sleeps while the future waits.
///
/// For programs without an executor of their own; inside one, `await` instead.
///
/// ```
/// assert_eq!(rnic::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Some(output) = block_on_until(future.as_mut(), Deadline::never()) {
            return output;
        }
    }
}

/// As [`block_on`], until the deadline.
pub(crate) fn block_on_until<F: Future>(future: F, deadline: Deadline) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        // Returns at once when the waker was called meanwhile.
        std::thread::park_timeout(deadline.left()?);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
