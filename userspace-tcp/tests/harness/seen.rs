//! Which bytes of a stream were shown.

/// Ranges that neither touch nor overlap, in ascending order.
#[derive(Debug, Default)]
pub struct Seen(Vec<(u64, u64)>);

impl Seen {
    /// Adds what was never there before.
    pub fn add(&mut self, start: u64, end: u64) {
        let at = self.0.partition_point(|range| range.1 < start);
        let mut joined = (start, end);
        let mut until = at;
        while let Some(&(a, b)) = self.0.get(until).filter(|range| range.0 <= end) {
            assert!(b <= start || a >= end, "bytes {start}..{end} came twice");
            joined = (joined.0.min(a), joined.1.max(b));
            until += 1;
        }
        self.0.splice(at..until, [joined]);
    }

    /// One past the end of the bytes that have all before them.
    pub fn first_gap(&self) -> u64 {
        match self.0.first() {
            Some(&(0, end)) => end,
            _ => 0,
        }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}
