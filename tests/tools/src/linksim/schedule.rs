//! Frames that wait for their time, and those held back for others to overtake them.
//!
//! Every frame gets a place in line when it comes. One that is held back leaves when the frame so
//! many places behind it has left, or when its patience ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rnic_xsk::Frame;

/// Frames that wait.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    timed: BinaryHeap<Reverse<Timed>>,
    held: Vec<Held>,
    /// Held back long enough, oldest first.
    released: VecDeque<(Frame, bool)>,
    next_place: u64,
}

#[derive(Debug)]
struct Timed {
    due: Duration,
    place: u64,
    frame: Frame,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    place: u64,
    /// Leaves when this place or a later one has left.
    after: u64,
    until: Duration,
    overtaken: bool,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.place) == (other.due, other.place)
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.place).cmp(&(other.due, other.place))
    }
}

impl Schedule {
    /// Takes a frame that leaves at `due`.
    pub fn push(&mut self, due: Duration, frame: Frame) {
        let place = self.place();
        self.timed.push(Reverse(Timed { due, place, frame }));
    }

    /// Takes a frame that would leave at `due`, but leaves when `behind` later frames have left, or
    /// `wait` after its time.
    pub fn hold(&mut self, due: Duration, frame: Frame, behind: u32, wait: Duration) {
        let place = self.place();
        self.held.push(Held {
            frame,
            place,
            after: place + u64::from(behind),
            until: due.saturating_add(wait),
            overtaken: false,
        });
    }

    /// When there is something to take, if ever.
    pub fn deadline(&self) -> Option<Duration> {
        if !self.released.is_empty() {
            return Some(Duration::ZERO);
        }
        let timed = self.timed.peek().map(|entry| entry.0.due);
        let held = self.held.iter().map(|held| held.until);
        held.chain(timed).min()
    }

    /// Takes a frame whose time has come, and whether others have overtaken it.
    pub fn pop(&mut self, now: Duration) -> Option<(Frame, bool)> {
        if let Some(released) = self.released.pop_front() {
            return Some(released);
        }
        let due = self.timed.peek().map(|entry| entry.0.due);
        if !self.held.is_empty() {
            // Whoever's patience ends before the next frame's time goes first.
            let limit = due.unwrap_or(now).min(now);
            self.release(|held| held.until <= limit);
            if let Some(released) = self.released.pop_front() {
                return Some(released);
            }
        }
        if due? > now {
            return None;
        }
        let Reverse(left) = self.timed.pop()?;
        for held in &mut self.held {
            held.overtaken |= held.place < left.place;
        }
        self.release(|held| held.after <= left.place);
        Some((left.frame, false))
    }

    pub fn len(&self) -> usize {
        self.timed.len() + self.held.len() + self.released.len()
    }

    fn place(&mut self) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        place
    }

    fn release(&mut self, which: impl Fn(&Held) -> bool) {
        for held in self.held.extract_if(.., |held| which(held)) {
            self.released.push_back((held.frame, held.overtaken));
        }
    }
}
