//! What a call leaves behind for its caller: events, buffers that nobody needs any more, and packets that are no
//! association's any more, or never were one's.

use std::collections::VecDeque;

use userspace_net::Instant;
use userspace_net::arrival_rate::ArrivalRate;

use crate::cause::{self, Cause, Causes};
use crate::chunk::Chunk;
use crate::config::Config;
use crate::interface::{AssocId, Counters, Event, Route};
use crate::packet::{Header, Writer};
use crate::random::Random;
use crate::stateless::ANSWER_MAX;

/// Most answers that wait to be sent; further ones are dropped, and their peers ask again.
pub(crate) const ANSWERS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Effects<B> {
    pub(crate) events: VecDeque<(AssocId, Event)>,
    pub(crate) released: VecDeque<B>,
    pub(crate) answers: Answers,
    pub(crate) counters: Counters,
    /// How fast packets with data come to all associations.
    pub(crate) arrival_rate: ArrivalRate,
}

impl<B> Effects<B> {
    pub(crate) fn new() -> Self {
        Self {
            events: VecDeque::new(),
            released: VecDeque::new(),
            answers: Answers::new(),
            counters: Counters::default(),
            arrival_rate: ArrivalRate::default(),
        }
    }

    /// Queues a packet with one chunk.
    pub(crate) fn farewell(&mut self, route: Route, tag: u32, chunk: &Chunk<'_>) {
        let header = Header {
            source: route.ends.local.port(),
            destination: route.ends.remote.port(),
            tag,
        };
        self.answer(route, |out| {
            let written = Writer::new(out, header).and_then(|mut writer| {
                writer.chunk(chunk)?;
                Ok(writer.finish())
            });
            // What does not fit is not said.
            written.unwrap_or(0)
        });
    }

    /// Queues an ABORT; `reflected`: the tag is the peer's own, sent back.
    pub(crate) fn abort(&mut self, route: Route, tag: u32, reflected: bool, cause: &Cause<'_>) {
        let mut causes = [0; ANSWER_MAX - 64];
        let mut writer = cause::Writer::new(&mut causes);
        // Always: of what it quotes, only what fits.
        let _ = writer.put(&cause.within(ANSWER_MAX - 64));
        let len = writer.finish();
        let causes = Causes::new(&causes[..len]);
        self.farewell(route, tag, &Chunk::Abort { reflected, causes });
    }

    /// Queues what `write` writes, when it is anything and there is room.
    pub(crate) fn answer(&mut self, route: Route, write: impl FnOnce(&mut [u8]) -> usize) {
        let is_taken = self.answers.push(route, write);
        self.counters.answers_dropped += u64::from(!is_taken);
    }
}

/// Short packets that wait to be sent, in memory that was there from the beginning.
#[derive(Debug)]
pub(crate) struct Answers {
    waiting: VecDeque<(Route, usize, u8)>,
    memory: Vec<[u8; ANSWER_MAX]>,
    vacant: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(ANSWERS_MAX),
            memory: vec![[0; ANSWER_MAX]; ANSWERS_MAX],
            vacant: (0..ANSWERS_MAX as u8).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// `false` when there is no room.
    fn push(&mut self, route: Route, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(at) = self.vacant.pop() else {
            return false;
        };
        match write(&mut self.memory[usize::from(at)]) {
            0 => self.vacant.push(at),
            len => self.waiting.push_back((route, len, at)),
        }
        true
    }

    /// Writes the oldest one to `out`. One for which `out` is too short is dropped.
    pub(crate) fn pop(&mut self, out: &mut [u8]) -> Option<(Route, usize)> {
        while let Some((route, len, at)) = self.waiting.pop_front() {
            self.vacant.push(at);
            if let Some(place) = out.get_mut(..len) {
                place.copy_from_slice(&self.memory[usize::from(at)][..len]);
                return Some((route, len));
            }
        }
        None
    }
}

/// What an association needs beside itself.
#[derive(Debug)]
pub(crate) struct Env<'a, B> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) random: &'a mut Random,
    pub(crate) effects: &'a mut Effects<B>,
}
