//! TCP_INFO, as Linux lays it out (tcp(7)), with what the stack knows; the rest is zero.

use std::time::Duration;

use userspace_tcp::{Info, State};

use crate::connection::Connection;

/// Bits of the options field.
const TIMESTAMPS: u8 = 1;
const ECN: u8 = 8;

/// Bytes of the structure as it is in Linux 6.
const LEN: usize = 240;

/// The structure of a connection; `info` is `None` when it is gone.
pub(crate) fn bytes(info: Option<&Info>, connection: &Connection) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEN);
    let Some(info) = info else {
        out.push(state(None));
        out.resize(LEN, 0);
        return out;
    };
    let mut options = 0;
    options |= if info.timestamps { TIMESTAMPS } else { 0 };
    options |= if info.ecn { ECN } else { 0 };
    out.extend([state(Some(info.state)), 0, 0, 0, 0, options, 0, 0]);
    let mss = info.mss.max(1) as u64;
    let segments = |bytes: u64| bytes.div_ceil(mss);
    let counters = &info.counters;
    for field in [
        micros(info.rto),
        0, // ato
        mss,
        0, // rcv_mss
        info.queued_segments as u64,
        0, // sacked
        0, // lost
        0, // retrans
        0, // fackets
        0, // last_data_sent
        0, // last_ack_sent
        0, // last_data_recv
        0, // last_ack_recv
        info.path_mtu.into(),
        0, // rcv_ssthresh
        info.srtt.map_or(0, micros),
        micros(info.rttvar),
        segments(info.ssthresh),
        info.cwnd / mss,
        0, // advmss
        0, // reordering
        0, // rcv_rtt
        0, // rcv_space
        counters.retransmits,
    ] {
        out.extend(u32::try_from(field).unwrap_or(u32::MAX).to_ne_bytes());
    }
    // Pacing rates and bytes acknowledged are not known.
    for field in [0, 0, 0, counters.bytes_in] {
        out.extend(field.to_ne_bytes());
    }
    for field in [
        counters.segments_out,
        counters.segments_in,
        connection.unsent() as u64,
    ] {
        out.extend(u32::try_from(field).unwrap_or(u32::MAX).to_ne_bytes());
    }
    out.resize(LEN, 0);
    out
}

/// The numbers of Linux's TCP states.
fn state(state: Option<State>) -> u8 {
    match state {
        Some(State::Established) => 1,
        Some(State::SynSent) => 2,
        Some(State::SynReceived) => 3,
        Some(State::FinWait1) => 4,
        Some(State::FinWait2) => 5,
        Some(State::TimeWait) => 6,
        None => 7,
        Some(State::CloseWait) => 8,
        Some(State::LastAck) => 9,
        Some(State::Closing) => 11,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
