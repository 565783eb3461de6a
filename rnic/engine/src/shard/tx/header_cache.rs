//! What TCP sends, on its way to the link; of it, bursts: segments of one connection that go out for the
//! first time.
//!
//! What all of a burst have in common is put into the headers of the connection that sent last, which
//! are kept, and a segment's own into its frame. All other segments are
//! `Tx::send_segment`'s.

use std::net::IpAddr;

use rnic_net::{HeaderTemplate, Path, VariableFields};
use rnic_xsk::{Frame, Port};
use userspace_net::FourTuple;
use userspace_tcp::{BurstHead, BurstSegment, ConnId, Flags, Transmit};

use crate::capture::Tap;
use crate::conn::ConnTable;
use crate::counters::ShardCounters;
use crate::shard::loopback::Loopback;
use crate::shard::tx::link::Link;

/// The headers of the connection that sent last.
#[derive(Debug)]
pub(in crate::shard) struct Headers {
    conn: ConnId,
    between: [IpAddr; 2],
    path: Path,
    timestamps: bool,
    template: HeaderTemplate,
}

/// A burst's way to the link.
pub(super) struct Burst<'a, P> {
    pub conns: &'a ConnTable,
    pub ports: &'a mut [P],
    pub loopback: &'a mut Loopback,
    pub tap: Tap<'a>,
    pub link: &'a mut Link,
    pub headers: &'a mut Option<Headers>,
    pub counters: &'a mut ShardCounters,
    /// What it is given leaves at once, before TCP does its bookkeeping.
    pub hastens: bool,
    pub conn: Option<ConnId>,
    /// The path, and the port by which frames leave.
    pub way: Option<(&'a Path, usize)>,
    pub says: VariableFields,
    /// What the headers are set for: bytes of payload, and whether PSH is set.
    pub set_for: Option<(u32, bool)>,
    /// A segment of no burst, which needs more than is here.
    pub other: Option<Transmit<Frame>>,
}

impl<P: Port> userspace_tcp::Link<Frame> for Burst<'_, P> {
    // So that what the burst says needs not be put into memory, and be fetched from there as other words.
    #[inline(always)]
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead) {
        let conn = self.conns.get(head.conn);
        self.conn = Some(head.conn);
        self.way = conn.map(|conn| (&conn.path, self.link.exit(conn.port())));
        self.set_for = None;
        self.says = VariableFields {
            ack: head.ack,
            flags: head.flags,
            window: head.window,
            timestamps: head.timestamps,
            ecn: head.ecn,
        };
        if let Some((path, _)) = self.way {
            let fits = |headers: &mut Headers| headers.are_for(tuple, head, path);
            if !self.headers.as_mut().is_some_and(fits) {
                *self.headers = Headers::of(tuple, head, path);
            }
        }
    }

    #[inline]
    fn put(&mut self, segment: BurstSegment<Frame>) -> Option<Frame> {
        let (Some(headers), Some((_, exit))) = (self.headers.as_mut(), self.way) else {
            self.counters.unsendable += 1;
            return Some(segment.buf);
        };
        let template = &mut headers.template;
        let (len, push) = (segment.len, segment.push);
        if self.set_for != Some((len, push)) {
            let mut says = self.says;
            if push {
                says.flags |= Flags::PSH;
            }
            let set = template.set(&says, len as usize);
            self.set_for = set.map(|()| (len, push));
        }
        let mut frame = segment.buf;
        // The payload must lie where the headers end.
        let fits = template.headers_len() + len as usize == frame.len() && self.set_for.is_some();
        let bytes = self.tap.umem.bytes_mut(&mut frame);
        if !fits || template.write(segment.seq, segment.sum, bytes).is_none() {
            self.counters.unsendable += 1;
            return Some(frame);
        }
        let owner = self.conn.map(|conn| (conn, segment.id));
        let ports = (&mut *self.ports, &mut *self.loopback);
        let refused = match self
            .link
            .hand_over(&mut self.tap, ports, exit, frame, owner)
        {
            Ok(()) => None,
            Err(frame) => {
                self.counters.transmit_full += 1;
                Some(frame)
            }
        };
        if self.hastens {
            self.link.flush(self.ports, self.counters);
        }
        refused
    }

    fn send(&mut self, segment: Transmit<Frame>) {
        self.other = Some(segment);
    }
}

impl Headers {
    #[cold]
    #[inline(never)]
    fn of(tuple: &FourTuple, head: &BurstHead, path: &Path) -> Option<Self> {
        let timestamps = head.timestamps.is_some();
        Some(Self {
            conn: head.conn,
            between: between(tuple),
            path: *path,
            timestamps,
            template: HeaderTemplate::new(path, tuple, timestamps)?,
        })
    }

    /// Whether they are this connection's, or are made so because only the ports differ.
    #[inline]
    fn are_for(&mut self, tuple: &FourTuple, head: &BurstHead, path: &Path) -> bool {
        if self.path != *path || self.timestamps != head.timestamps.is_some() {
            return false;
        }
        // A connection's ends stay what they are.
        if self.conn != head.conn {
            if self.between != between(tuple) {
                return false;
            }
            self.template.set_ports(tuple);
            self.conn = head.conn;
        }
        true
    }
}

fn between(tuple: &FourTuple) -> [IpAddr; 2] {
    [tuple.local.addr, tuple.remote.addr]
}

#[cfg(test)]
mod tests {
    use rnic_net::Path;
    use userspace_net::{Ecn, Endpoint, checksum::PartialSum};
    use userspace_tcp::SeqNum;

    use super::*;
    use crate::shard::conn_ids::conn_ids;

    fn tuple(peer: &str, port: u16) -> FourTuple {
        let end = |addr: &str, port| Endpoint::new(addr.parse().unwrap(), port);
        FourTuple {
            local: end("198.18.0.1", port),
            remote: end(peer, 4711),
        }
    }

    fn written(headers: &mut Headers, head: &BurstHead) -> Vec<u8> {
        let says = VariableFields {
            timestamps: head.timestamps,
            ..VariableFields::default()
        };
        headers.template.set(&says, 100).unwrap();
        let mut out = vec![0; headers.template.headers_len()];
        let sum = PartialSum::default();
        headers.template.write(SeqNum(7), sum, &mut out).unwrap();
        out
    }

    #[test]
    fn headers_are_made_anew_for_other_addresses_another_path_or_timestamps_and_for_ports_they_are_not()
     {
        let path = Path {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            mtu: 1500,
            hop_limit: 64,
        };
        let ids = conn_ids(2);
        let head = |conn: usize| BurstHead {
            conn: ids[conn],
            ack: SeqNum(1),
            flags: Flags::ACK,
            window: 100,
            timestamps: None,
            ecn: Ecn::NotEct,
        };
        let first = tuple("198.18.0.2", 1000);
        let mut headers = Headers::of(&first, &head(0), &path).unwrap();
        assert!(headers.are_for(&first, &head(0), &path));
        // A destination beyond a router has the same link address.
        let behind = tuple("198.18.9.2", 1000);
        assert!(!headers.are_for(&behind, &head(1), &path));
        let longer = Path { mtu: 9000, ..path };
        assert!(!headers.are_for(&first, &head(0), &longer));
        let stamped = BurstHead {
            timestamps: Some(userspace_tcp::Timestamps::default()),
            ..head(0)
        };
        assert!(!headers.are_for(&first, &stamped, &path));
        let second = tuple("198.18.0.2", 1001);
        assert!(headers.are_for(&second, &head(1), &path));
        let mut fresh = Headers::of(&second, &head(1), &path).unwrap();
        let expected = written(&mut fresh, &head(1));
        assert_eq!(written(&mut headers, &head(1)), expected);
        assert!(headers.are_for(&first, &head(0), &path));
        assert_ne!(written(&mut headers, &head(0)), expected);
    }
}
