//! Queue pairs that a program connects by `ibv_modify_qp`, as InfiniBand's: which attributes must come with a state, and
//! what `ibv_query_qp` tells of them.

use std::ffi::c_int;
use std::net::IpAddr;

use rnic::{Access, MpaOptions};
use rustix::io::Errno;

use crate::abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_RTR, IBV_QPS_RTS, ibv_qp_attr,
};
use crate::device::{self, MAX_READS};
use crate::ffi::{Fail, Outcome};
use crate::pd::peer_rights;

/// What RTR takes (InfiniBand Architecture Specification 1.2.1, table 91).
const RTR: c_int = IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
/// What RTS takes (table 91).
const RTS: c_int =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
/// Numbers of queue pairs, and of packets, have so many bits.
const NUMBER_BITS: u32 = 24;

/// What a program has set.
#[derive(Default)]
pub(super) struct ByNumber {
    /// RTR or RTS, from when it was reached.
    state: Option<c_int>,
    /// The attributes that were set at all.
    mask: c_int,
    attr: ibv_qp_attr,
}

impl ByNumber {
    pub(super) fn is_joined(&self) -> bool {
        self.state.is_some()
    }

    /// The state that was set, or else this one.
    pub(super) fn state(&self, otherwise: c_int) -> c_int {
        self.state.unwrap_or(otherwise)
    }

    /// These attributes were set.
    pub(super) fn note(&mut self, attr: &ibv_qp_attr, mask: c_int) {
        if mask & IBV_QP_STATE != 0 && [IBV_QPS_RTR, IBV_QPS_RTS].contains(&attr.qp_state) {
            let by_number = mask & IBV_QP_AV != 0 || self.is_joined();
            self.state = by_number.then_some(attr.qp_state);
        }
        self.mask |= mask;
        copy(&mut self.attr, attr, mask);
    }

    /// What the peer may do, by these attributes or those that were set before.
    pub(super) fn peer_access(&self, attr: &ibv_qp_attr, mask: c_int) -> Option<Access> {
        let of = |mask: c_int, attr: &ibv_qp_attr| {
            (mask & IBV_QP_ACCESS_FLAGS != 0).then(|| peer_rights(attr.qp_access_flags))
        };
        of(mask, attr).or_else(|| of(self.mask, &self.attr))
    }

    /// What a query tells, of a queue pair of which `attr` says what the RNIC knows.
    pub(super) fn told(&self, mut attr: ibv_qp_attr) -> ibv_qp_attr {
        if self.is_joined() {
            copy(&mut attr, &self.attr, self.mask);
        }
        attr
    }
}

/// Copies the attributes that a mask names, but for states.
fn copy(to: &mut ibv_qp_attr, from: &ibv_qp_attr, mask: c_int) {
    macro_rules! copy {
        ($($bit:ident: $field:ident),* $(,)?) => {
            $(if mask & $bit != 0 {
                to.$field = from.$field;
            })*
        };
    }
    copy! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags,
        IBV_QP_PKEY_INDEX: pkey_index,
        IBV_QP_PORT: port_num,
        IBV_QP_AV: ah_attr,
        IBV_QP_PATH_MTU: path_mtu,
        IBV_QP_DEST_QPN: dest_qp_num,
        IBV_QP_RQ_PSN: rq_psn,
        IBV_QP_SQ_PSN: sq_psn,
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic,
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer,
        IBV_QP_TIMEOUT: timeout,
        IBV_QP_RETRY_CNT: retry_cnt,
        IBV_QP_RNR_RETRY: rnr_retry,
    }
}

/// To whom RTR connects a queue pair.
#[derive(Debug, PartialEq)]
pub(super) struct Peer {
    /// Of the GID that the program's own peer knows.
    pub(super) local: IpAddr,
    /// GID and queue pair number.
    pub(super) remote: (IpAddr, u32),
    pub(super) mpa: MpaOptions,
}

impl Peer {
    /// What the attributes of RTR say, on a device of these addresses.
    pub(super) fn of(attr: &ibv_qp_attr, mask: c_int, addresses: &[IpAddr]) -> Outcome<Self> {
        check_mask("RTR", mask, RTR)?;
        let invalid = |why: String| Fail::of(Errno::INVAL, why);
        let ah = &attr.ah_attr;
        if ah.is_global == 0 {
            return Err(invalid(
                "a peer without a GID: its address is not known so; give a GID index (perftest -x, ibv_rc_pingpong -g)"
                    .to_owned(),
            ));
        }
        let index = usize::from(ah.sgid_index);
        let local = addresses.get(index).copied().ok_or_else(|| {
            let count = addresses.len();
            invalid(format!(
                "GID index {index} of a device that has {count} GIDs"
            ))
        })?;
        let mut gid = [0; 16];
        for (bytes, word) in gid.chunks_exact_mut(8).zip(ah.dgid) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        if attr.dest_qp_num >> NUMBER_BITS != 0 {
            let number = attr.dest_qp_num;
            return Err(invalid(format!(
                "queue pair {number:#x}: numbers have {NUMBER_BITS} bits"
            )));
        }
        let mpa = MpaOptions {
            ird: attr.max_dest_rd_atomic.min(MAX_READS).into(),
            // What this side sends is known with RTS. The peer says how many it takes.
            ord: MAX_READS.into(),
            ..MpaOptions::default()
        };
        Ok(Self {
            local,
            remote: (device::address(gid), attr.dest_qp_num),
            mpa,
        })
    }
}

/// That what RTS takes is there. It has no effect: TCP has timers of its own.
pub(super) fn check_rts(mask: c_int) -> Outcome<()> {
    check_mask("RTS", mask, RTS)
}

fn check_mask(state: &str, mask: c_int, needed: c_int) -> Outcome<()> {
    match needed & !mask {
        0 => Ok(()),
        missing => Err(Fail::of(
            Errno::INVAL,
            format!(
                "{state} without attributes {missing:#x}: name the peer's queue pair with all of {needed:#x}"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::abi::ibv_ah_attr;

    fn rtr() -> ibv_qp_attr {
        let gid = device::gid("198.18.0.2".parse().unwrap()).0;
        let word = |at: usize| u64::from_ne_bytes(gid[at..at + 8].try_into().unwrap());
        ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            dest_qp_num: 0x12_3456,
            rq_psn: 77,
            max_dest_rd_atomic: 16,
            ah_attr: ibv_ah_attr {
                dgid: [word(0), word(8)],
                sgid_index: 1,
                is_global: 1,
                ..ibv_ah_attr::default()
            },
            ..ibv_qp_attr::default()
        }
    }

    fn addresses() -> [IpAddr; 2] {
        ["2001:db8::1", "198.18.0.1"].map(|address| address.parse().unwrap())
    }

    #[test]
    fn rtr_names_the_peer() {
        let peer = Peer::of(&rtr(), RTR, &addresses()).unwrap();
        assert_eq!(peer.local, addresses()[1]);
        assert_eq!(peer.remote, ("198.18.0.2".parse().unwrap(), 0x12_3456));
        assert_eq!(peer.mpa.ird, 16);
    }

    #[test]
    fn rtr_without_what_names_the_peer_is_invalid() {
        let refused = |attr: ibv_qp_attr, mask| {
            let peer = Peer::of(&attr, mask, &addresses());
            peer.unwrap_err().errno == Errno::INVAL
        };
        assert!(refused(rtr(), RTR & !IBV_QP_DEST_QPN));
        let mut local = rtr();
        local.ah_attr.is_global = 0;
        assert!(refused(local, RTR));
        let mut index = rtr();
        index.ah_attr.sgid_index = 2;
        assert!(refused(index, RTR));
        let mut number = rtr();
        number.dest_qp_num = 1 << 24;
        assert!(refused(number, RTR));
        assert!(check_rts(RTS & !IBV_QP_SQ_PSN).is_err() && check_rts(RTS).is_ok());
    }

    #[test]
    fn a_query_tells_what_was_set() {
        let mut set = ByNumber::default();
        assert_eq!(set.state(IBV_QPS_RTS), IBV_QPS_RTS);
        set.note(&rtr(), RTR | IBV_QP_STATE);
        assert_eq!(set.state(IBV_QPS_RTS), IBV_QPS_RTR);
        let rts = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: 99,
            timeout: 14,
            rq_psn: 1,
            ..ibv_qp_attr::default()
        };
        set.note(&rts, RTS | IBV_QP_STATE);
        assert_eq!(set.state(IBV_QPS_RTS), IBV_QPS_RTS);
        let told = set.told(ibv_qp_attr::default());
        assert_eq!((told.dest_qp_num, told.rq_psn), (0x12_3456, 77));
        assert_eq!((told.sq_psn, told.timeout), (99, 14));
        assert_eq!(told.ah_attr.sgid_index, 1);
    }
}
