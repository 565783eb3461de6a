//! The scatter/gather elements of a work request as one run of bytes.

use rnic_ipc::work::Sge;

/// The pieces of elements that hold the `len` bytes at `offset` of the run, in order, none of
/// them empty. Shorter in all when the elements end before.
pub(super) fn pieces(sges: &[Sge], offset: u64, len: u32) -> impl Iterator<Item = Sge> {
    let (mut skip, mut left) = (offset, len);
    sges.iter().filter_map(move |sge| {
        let length = u64::from(sge.length);
        let from = skip.min(length);
        skip -= from;
        // Both are at most the element's length, a u32.
        let take = (length - from).min(u64::from(left)) as u32;
        left -= take;
        // An address that wraps was posted so; saturated it still fails the STag's bounds.
        let addr = sge.addr.saturating_add(from);
        (take > 0).then_some(Sge {
            addr,
            length: take,
            lkey: sge.lkey,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(addr: u64, length: u32, lkey: u32) -> Sge {
        Sge { addr, length, lkey }
    }

    fn collect(sges: &[Sge], offset: u64, len: u32) -> Vec<Sge> {
        pieces(sges, offset, len).collect()
    }

    #[test]
    fn a_run_crosses_elements_and_skips_empty_ones() {
        let sges = [sge(100, 4, 1), sge(0, 0, 9), sge(200, 6, 2)];
        assert_eq!(collect(&sges, 0, 10), [sge(100, 4, 1), sge(200, 6, 2)]);
        assert_eq!(collect(&sges, 3, 3), [sge(103, 1, 1), sge(200, 2, 2)]);
        assert_eq!(collect(&sges, 4, 6), [sge(200, 6, 2)]);
        assert_eq!(collect(&sges, 9, 5), [sge(205, 1, 2)]);
        assert_eq!(collect(&sges, 10, 5), []);
        assert_eq!(collect(&sges, 0, 0), []);
    }

    #[test]
    fn an_address_at_the_end_of_the_space_does_not_wrap() {
        let sges = [sge(u64::MAX, 8, 1)];
        assert_eq!(collect(&sges, 4, 4), [sge(u64::MAX, 4, 1)]);
    }
}
