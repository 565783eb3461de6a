//! Markers in a stream of FPDUs (RFC 5044 section 4.3), by counting bytes.

/// Bytes from one Marker to the next.
const INTERVAL: usize = 512;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Markers {
    /// The receiver wants them.
    pub on: bool,
    /// Bytes behind the start-up.
    count: usize,
}

impl Markers {
    pub fn new(on: bool) -> Self {
        Self { on, count: 0 }
    }

    /// An FPDU, which was made without Markers, as it goes out here.
    pub fn put(&mut self, fpdu: &[u8], crc: bool) -> Vec<u8> {
        if !self.on {
            return fpdu.to_vec();
        }
        let (covered, sum) = fpdu.split_at(fpdu.len() - 4);
        let (mut out, mut header) = (Vec::new(), None);
        for byte in covered {
            out.extend(self.marker(header).into_iter().flatten());
            header.get_or_insert(self.count);
            out.push(*byte);
            self.count += 1;
        }
        // A Marker before the CRC is covered by it.
        out.extend(self.marker(header).into_iter().flatten());
        let marked = crc32c::crc32c(&out).to_le_bytes();
        out.extend(if crc { &marked[..] } else { sum });
        self.count += 4;
        out
    }

    /// The Marker that stands here, if one does; `header` is where its FPDU begins.
    fn marker(&mut self, header: Option<usize>) -> Option<[u8; 4]> {
        if !self.count.is_multiple_of(INTERVAL) {
            return None;
        }
        let back = header.map_or(0, |header| self.count - header);
        let [high, low] = u16::try_from(back).unwrap().to_be_bytes();
        self.count += 4;
        Some([0, 0, high, low])
    }

    /// Reads an FPDU, and gives it without its Markers, which are checked. `read` fills what it is
    /// given, `length` tells the whole FPDU's bytes from the first two.
    pub fn take<E>(
        &mut self,
        crc: bool,
        length: impl Fn([u8; 2]) -> usize,
        mut read: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let (mut fpdu, mut wire, mut header) = (Vec::new(), Vec::new(), None);
        while fpdu.len() < 2 || fpdu.len() < length([fpdu[0], fpdu[1]]) {
            if self.on
                && let Some(expected) = self.marker(header)
            {
                let mut found = [0; 4];
                read(&mut found)?;
                assert_eq!(found, expected, "a Marker that points astray");
                wire.extend(found);
            }
            header.get_or_insert(self.count);
            // The length alone, then as far as it goes, or as the next Marker lets it.
            let wanted = match fpdu[..] {
                [first, second, ..] => length([first, second]) - fpdu.len(),
                _ => 2,
            };
            let free = INTERVAL - self.count % INTERVAL;
            let mut part = vec![0; if self.on { wanted.min(free) } else { wanted }];
            read(&mut part)?;
            self.count += part.len();
            wire.extend(&part);
            fpdu.extend(&part);
        }
        if self.on && crc {
            let (covered, sum) = wire.split_at(wire.len() - 4);
            assert_eq!(sum, crc32c::crc32c(covered).to_le_bytes(), "wrong CRC");
            let end = fpdu.len() - 4;
            let plain = crc32c::crc32c(&fpdu[..end]).to_le_bytes();
            fpdu[end..].copy_from_slice(&plain);
        }
        Ok(fpdu)
    }
}
