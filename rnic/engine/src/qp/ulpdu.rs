//! The place of an outbound ULPDU: the octets of its FPDU that Markers leave.

use std::convert::Infallible;

use rnic_proto::mpa::fpdu::Layout;

/// Where a ULPDU is written, within the octets of its FPDU.
#[derive(Debug)]
pub(super) struct UlpduBuf<'a> {
    fpdu: &'a mut [u8],
    layout: Layout,
}

impl<'a> UlpduBuf<'a> {
    /// `fpdu` are the octets of the layout.
    pub fn new(fpdu: &'a mut [u8], layout: Layout) -> Self {
        debug_assert!(fpdu.len() >= layout.len(), "the whole FPDU has its place");
        Self { fpdu, layout }
    }

    /// Octets of the ULPDU.
    pub fn len(&self) -> usize {
        self.layout.ulpdu_len()
    }

    /// Writes octets of the ULPDU from its octet `from` on.
    pub fn put(&mut self, from: usize, octets: &[u8]) {
        let Ok(()) = self.fill(from, octets.len(), |at, place| {
            place.copy_from_slice(&octets[at..at + place.len()]);
            Ok::<(), Infallible>(())
        });
    }

    /// Has `len` octets of the ULPDU from its octet `from` on written by `write`, in order: it is
    /// given how many of them were written before, and the place of the next.
    pub fn fill<E>(
        &mut self,
        from: usize,
        len: usize,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for span in self.layout.ulpdu(from, len) {
            let octets = span.len();
            write(done, &mut self.fpdu[span])?;
            done += octets;
        }
        Ok(())
    }
}
