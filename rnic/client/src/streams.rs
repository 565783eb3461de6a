//! What comes again and again, as streams.
//!
//! A stream ends after its first error: what comes from a completion queue or a listener that failed, or from a
//! daemon that is gone, never goes on.

use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use crate::completion::{CompletionQueue, WorkCompletion};
use crate::error::Error;
use crate::listener::{ConnectionRequest, Listener};
use crate::waits::Accepting;
use crate::watcher::Watcher;

impl CompletionQueue {
    /// The completions of the queue, as a stream. It takes one at a time, so that nothing is lost when it is
    /// dropped. It ends after an error.
    pub fn completions(&self) -> Completions<'_> {
        Completions {
            cq: self,
            watcher: Some(Watcher::of(self)),
        }
    }
}

/// A stream of completions: [`CompletionQueue::completions`].
#[derive(Debug)]
#[must_use = "a stream does nothing until it is polled"]
pub struct Completions<'a> {
    cq: &'a CompletionQueue,
    /// None after an error.
    watcher: Option<Watcher<'a>>,
}

impl Stream for Completions<'_> {
    type Item = Result<WorkCompletion, Error>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let Some(watcher) = &mut this.watcher else {
            return Poll::Ready(None);
        };
        let found = ready!(watcher.poll(task, || this.cq.take_one()));
        if found.is_err() {
            this.watcher = None;
        }
        Poll::Ready(Some(found))
    }
}

impl FusedStream for Completions<'_> {
    fn is_terminated(&self) -> bool {
        self.watcher.is_none()
    }
}

impl Listener {
    /// Peers' requests, as a stream. It ends after an error.
    pub fn requests(&self) -> Requests<'_> {
        Requests {
            next: self.accept(),
            over: false,
        }
    }
}

/// A stream of peers' requests: [`Listener::requests`].
#[derive(Debug)]
#[must_use = "a stream does nothing until it is polled"]
pub struct Requests<'a> {
    next: Accepting<'a>,
    over: bool,
}

impl Stream for Requests<'_> {
    type Item = Result<ConnectionRequest, Error>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        let request = ready!(Pin::new(&mut this.next).poll(task));
        this.over = request.is_err();
        Poll::Ready(Some(request))
    }
}

impl FusedStream for Requests<'_> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}
