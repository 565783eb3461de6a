//! An FPDU that the peer's window does not take whole goes in two TCP segments (RFC 5044 section 5.1, RFC
//! 9293 section 3.8.6.2.1): otherwise it would wait for a window that may never come.

use rnic_xsk::{Frame, FramePool, Port, Umem};
use userspace_net::{ConnId, checksum};
use userspace_tcp::Outgoing;

use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Tx {
    /// Cuts a connection's next segment to what the peer's window takes. It stays whole while there is no frame for
    /// the rest: TCP asks again.
    #[cold]
    pub(in crate::shard) fn cut_next<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let Some(headers) = dp.conns.get(id).map(|conn| conn.header_room()) else {
            return;
        };
        let frames = &mut dp.frames;
        let cut = dp.stack.split(id, dp.now, |frame, at| {
            in_two(&frames.umem, &mut frames.pool, frame, headers, at)
        });
        dp.counters.fpdus_cut += u64::from(cut);
    }
}

/// Has the first bytes behind the headers of a segment that was never sent in its frame, and the rest in another.
fn in_two(
    umem: &Umem,
    pool: &mut FramePool,
    mut frame: Frame,
    headers: usize,
    at: usize,
) -> Result<[Outgoing<Frame>; 2], Frame> {
    let (middle, end) = (headers + at, frame.len());
    let Some(mut second) = pool.alloc_for(headers + end.saturating_sub(middle)) else {
        return Err(frame);
    };
    let first = umem.bytes(&frame).get(headers..middle).map(checksum::sum);
    let rest = umem.bytes(&frame).get(middle..end).unwrap_or(&[]);
    let len = rest.len();
    let place = umem.bytes_mut(&mut second);
    let copied = place.get_mut(headers..headers + len).map(|place| {
        place.copy_from_slice(rest);
        checksum::sum(place)
    });
    let (Some(first), Some(rest)) = (first, copied) else {
        pool.free(second);
        return Err(frame);
    };
    frame.set_len(middle);
    second.set_len(headers + len);
    let outgoing = |buf: Frame, len: usize, payload_sum| Outgoing {
        buf,
        len: len as u32,
        payload_sum,
    };
    Ok([outgoing(frame, at, first), outgoing(second, len, rest)])
}
