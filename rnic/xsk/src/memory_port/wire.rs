//! One direction of a link in memory: a bounded queue of frames. Its memory is made once.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A ring of fixed-size cells.
#[derive(Debug)]
pub(super) struct Wire {
    cells: Mutex<Cells>,
    depth: usize,
    frame_capacity: usize,
}

#[derive(Debug)]
struct Cells {
    /// `depth * frame_capacity` bytes.
    memory: Box<[u8]>,
    /// By cell: bytes of the frame in it.
    lens: Box<[usize]>,
    /// The oldest frame's cell.
    first: usize,
    used: usize,
}

impl Wire {
    /// # Panics
    ///
    /// When `depth` is 0.
    pub(super) fn new(depth: usize, frame_capacity: usize) -> std::sync::Arc<Wire> {
        assert!(depth > 0, "a wire that carries nothing");
        let cells = Cells {
            memory: vec![0; depth * frame_capacity].into(),
            lens: vec![0; depth].into(),
            first: 0,
            used: 0,
        };
        std::sync::Arc::new(Wire {
            cells: Mutex::new(cells),
            depth,
            frame_capacity,
        })
    }

    /// Nothing under the lock can leave the cells half changed, so poison is of no meaning.
    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn frame_capacity(&self) -> usize {
        self.frame_capacity
    }

    pub(super) fn len(&self) -> usize {
        self.lock().used
    }

    /// Bytes of the oldest frame; `None` when there is none.
    pub(super) fn next_len(&self) -> Option<usize> {
        let cells = self.lock();
        (cells.used > 0).then(|| cells.lens[cells.first])
    }

    /// `false` when it is full or `bytes` are larger than a cell.
    pub(super) fn push(&self, bytes: &[u8]) -> bool {
        let mut cells = self.lock();
        if cells.used == self.depth || bytes.len() > self.frame_capacity {
            return false;
        }
        let cell = (cells.first + cells.used) % self.depth;
        let start = cell * self.frame_capacity;
        cells.memory[start..start + bytes.len()].copy_from_slice(bytes);
        cells.lens[cell] = bytes.len();
        cells.used += 1;
        true
    }

    /// Shows the oldest frame to `take` and removes it; `false` when there is none.
    pub(super) fn pop(&self, take: impl FnOnce(&[u8])) -> bool {
        let mut cells = self.lock();
        if cells.used == 0 {
            return false;
        }
        let cell = cells.first;
        let start = cell * self.frame_capacity;
        take(&cells.memory[start..start + cells.lens[cell]]);
        cells.used -= 1;
        // An empty one starts over: the cells used last are still in the cache.
        cells.first = match cells.used {
            0 => 0,
            _ => (cell + 1) % self.depth,
        };
        true
    }
}
