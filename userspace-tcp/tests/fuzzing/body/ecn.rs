//! What explicit congestion notification asks of every segment (RFC 3168, RFC 8257).

use userspace_net::Ecn;
use userspace_tcp::{Flags, TcpHeader, Transmit};

use super::buffer::Buf;

#[derive(Debug, Default)]
pub struct EcnLaws {
    /// The peer's SYN or SYN-ACK offered or agreed, so far as flags can.
    peer_willing: bool,
    /// Some segment came with a congestion mark.
    marked: bool,
    /// Bytes with a mark were taken, and no CWR came since.
    owes_echo: bool,
    established: bool,
}

impl EcnLaws {
    /// A segment of the peer; `taken`: it brought something.
    pub fn received(&mut self, header: &TcpHeader, ecn: Ecn, taken: bool) {
        let flags = header.flags;
        if flags.syn() {
            let both = Flags::ECE | Flags::CWR;
            let offer = if flags.ack() { Flags::ECE } else { both };
            self.peer_willing |= Flags(flags.0 & both.0) == offer;
        }
        self.marked |= ecn == Ecn::Ce;
        if flags.contains(Flags::CWR) {
            self.owes_echo = false;
        }
        if ecn == Ecn::Ce && taken && self.established {
            self.owes_echo = true;
        }
    }

    pub fn sent(&mut self, transmit: &Transmit<Buf>, agreed: bool, dctcp: bool) {
        let flags = transmit.header.flags;
        let capable = transmit.ecn != Ecn::NotEct;
        if flags.syn() {
            assert!(!capable || dctcp, "a SYN that is ECN-capable");
            return;
        }
        self.established = agreed;
        if capable {
            assert!(self.peer_willing, "ECN that the peer did not agree to");
            let fresh = transmit.payload.as_ref().is_some_and(|p| !p.retransmission);
            assert!(fresh, "only what is sent the first time is ECN-capable");
        }
        if flags.contains(Flags::ECE) {
            assert!(self.marked, "an echo of nothing");
        } else if self.owes_echo && !dctcp && flags.ack() && !flags.rst() {
            panic!("the echo is missing");
        }
        if flags.contains(Flags::CWR) {
            assert!(self.peer_willing, "CWR without agreement");
        }
    }
}
