//! Bytes read as decisions. Behind the end everything is 0, so that every input means something.

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) << 16 | u32::from(self.short())
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// 0..n; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        if n <= 256 {
            usize::from(self.byte()) % n
        } else {
            self.word() as usize % n
        }
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// `base`, or a little off, or anything.
    pub fn near(&mut self, base: u32) -> u32 {
        match self.byte() % 16 {
            0..=9 => base,
            10 => base.wrapping_add(1),
            11 => base.wrapping_sub(1),
            12 => base.wrapping_add(u32::from(self.byte())),
            13 => base.wrapping_sub(u32::from(self.byte())),
            14 => base.wrapping_add(i32::from(self.short().cast_signed()).cast_unsigned()),
            _ => self.word(),
        }
    }
}
