//! What comes again and again, as streams and as an iterator.
//!
//! A stream ends after its first error: what comes from a completion queue or a listener that failed, or from a
//! daemon that is gone, never goes on.

use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use crate::completion::{CompletionQueue, WorkCompletion};
use crate::error::Error;
use crate::listener::{ConnectionRequest, Listener};
use crate::reactor::Place;
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
        let found = ready!(watcher.poll(task, || {
            let mut done = [WorkCompletion::default()];
            Ok((this.cq.poll(&mut done)? > 0).then(|| done[0]))
        }));
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
    /// Peers' requests, as they come. The iterator blocks, as that of `std::net::TcpListener` does, and ends
    /// after an error.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming {
            listener: self,
            over: false,
        }
    }

    /// Peers' requests, as a stream. It ends after an error.
    pub fn requests(&self) -> Requests<'_> {
        Requests {
            listener: self,
            place: None,
            over: false,
        }
    }
}

/// Peers' requests, by calls that block: [`Listener::incoming`].
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked for its next element"]
pub struct Incoming<'a> {
    listener: &'a Listener,
    over: bool,
}

impl Iterator for Incoming<'_> {
    type Item = Result<ConnectionRequest, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let request = self.listener.accept_request(Duration::MAX);
        self.over = request.is_err();
        Some(request)
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}

/// A stream of peers' requests: [`Listener::requests`].
#[derive(Debug)]
#[must_use = "a stream does nothing until it is polled"]
pub struct Requests<'a> {
    listener: &'a Listener,
    /// Taken by the first poll.
    place: Option<Place<'a>>,
    over: bool,
}

impl<'a> Requests<'a> {
    fn poll_request(&mut self, task: &Task<'_>) -> Poll<Result<ConnectionRequest, Error>> {
        let listener: &'a Listener = self.listener;
        let context = listener.context();
        let events = context.events();
        let place = match &self.place {
            Some(place) => place,
            None => self.place.insert(events.watch()?.place()),
        };
        let asked = events.poll(context, place, task, |boxes| listener.take(boxes));
        asked.map_ok(|asked| listener.request(asked))
    }
}

impl Stream for Requests<'_> {
    type Item = Result<ConnectionRequest, Error>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        let request = ready!(this.poll_request(task));
        this.over = request.is_err();
        Poll::Ready(Some(request))
    }
}

impl FusedStream for Requests<'_> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}
