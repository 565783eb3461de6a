//! A buffer that notices when a stack drops it instead of giving it back.

use std::cell::Cell;
use std::rc::Rc;

#[derive(Debug, Default)]
struct Counts {
    alive: Cell<i64>,
    dropped: Cell<u64>,
}

/// Hands out buffers and counts them.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Rc<Counts>);

#[derive(Debug)]
pub struct Buf {
    pub bytes: Vec<u8>,
    counts: Rc<Counts>,
    freed: bool,
}

impl Buffers {
    pub fn fill(&self, bytes: Vec<u8>) -> Buf {
        self.0.alive.set(self.0.alive.get() + 1);
        Buf {
            bytes,
            counts: self.0.clone(),
            freed: false,
        }
    }

    pub fn free(&self, mut buf: Buf) {
        buf.freed = true;
        self.0.alive.set(self.0.alive.get() - 1);
    }

    pub fn alive(&self) -> i64 {
        self.0.alive.get()
    }

    pub fn dropped(&self) -> u64 {
        self.0.dropped.get()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if !self.freed {
            self.counts.dropped.set(self.counts.dropped.get() + 1);
        }
    }
}
