//! The bounce ring: where a connection copies what came and can't stay in its frames, until all of it
//! is consumed. Rings are lent by the shard, which has a few of the usual size from the start; only
//! when more connections copy at once than ever before is one made.

/// Rings that are kept for the next connection.
const RINGS_KEPT: usize = 8;

const RINGS_MADE: usize = 2;

/// The rings without a user, all of one size.
#[derive(Debug)]
pub(super) struct BounceRings {
    spare: Vec<Box<[u8]>>,
    bytes: usize,
}

/// Byte `o` of the stream lies at `o % ring.len()`.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    ring: Option<Box<[u8]>>,
}

impl BounceRings {
    /// Rings of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let mut spare = Vec::with_capacity(RINGS_KEPT);
        spare.resize_with(RINGS_MADE, || new_ring(bytes));
        Self { spare, bytes }
    }

    /// A ring of at least so many bytes.
    fn take(&mut self, bytes: usize) -> Box<[u8]> {
        match self.spare.pop_if(|ring| ring.len() >= bytes) {
            Some(ring) => ring,
            None => new_ring(bytes.max(self.bytes)),
        }
    }

    fn give(&mut self, ring: Box<[u8]>) {
        if self.spare.len() < RINGS_KEPT && ring.len() == self.bytes {
            self.spare.push(ring);
        }
    }
}

fn new_ring(bytes: usize) -> Box<[u8]> {
    vec![0; bytes.max(1)].into_boxed_slice()
}

impl Bounce {
    /// Whether what comes is copied.
    pub(super) fn is_active(&self) -> bool {
        self.ring.is_some()
    }

    /// What comes from now on is copied, at most `window` bytes at a time.
    pub(super) fn start(&mut self, rings: &mut BounceRings, window: usize) {
        if self.ring.is_none() {
            self.ring = Some(rings.take(window));
        }
    }

    /// Nothing is in it any more.
    pub(super) fn stop(&mut self, rings: &mut BounceRings) {
        if let Some(ring) = self.ring.take() {
            rings.give(ring);
        }
    }

    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        let size = ring.len();
        let at = (offset % size as u64) as usize;
        let first = bytes.len().min(size - at);
        let (a, b) = bytes.split_at(first);
        ring[at..at + first].copy_from_slice(a);
        ring[..b.len()].copy_from_slice(b);
    }

    pub(super) fn get(&self, offset: u64, len: usize) -> (&[u8], &[u8]) {
        let ring = self.ring.as_deref().unwrap_or(&[0]);
        let size = ring.len();
        let at = (offset % size as u64) as usize;
        let first = len.min(size - at);
        (&ring[at..at + first], &ring[..len - first])
    }
}
