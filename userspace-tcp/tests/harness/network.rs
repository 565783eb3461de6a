//! The link and the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use userspace_net::{FourTuple, Instant};
use userspace_tcp::{Config, ConnId, IcmpError, ResourceUsage, SegmentId, SeqNum, Transmit};

use super::{Buf, Endpoint, Plan, Random, bursts, packet};

#[derive(Debug, Clone)]
pub struct Link {
    pub lose_per_mille: u64,
    pub duplicate_per_mille: u64,
    /// Of packets that take up to `jitter` longer.
    pub delay_per_mille: u64,
    pub jitter: Duration,
    pub delay: Duration,
    /// Of packets whose payload is cut in two segments on the way.
    pub split_per_mille: u64,
    /// Of packets that the link hands back unsent.
    pub refuse_per_mille: u64,
    /// How long the link keeps a buffer, at most.
    pub hold: Duration,
    /// Time between two packets of one side.
    pub spacing: Duration,
    /// The largest IP packet that passes, in bytes.
    pub mtu: usize,
    /// Of packets that are too large: how many bring an ICMP error.
    pub icmp_per_mille: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            lose_per_mille: 0,
            duplicate_per_mille: 0,
            delay_per_mille: 0,
            jitter: Duration::ZERO,
            split_per_mille: 0,
            delay: Duration::from_micros(100),
            refuse_per_mille: 0,
            hold: Duration::from_micros(20),
            spacing: Duration::from_micros(1),
            mtu: usize::MAX,
            icmp_per_mille: 1000,
        }
    }
}

/// Side, header and bytes of payload.
pub type Filter = Box<dyn FnMut(usize, &userspace_tcp::TcpHeader, usize) -> bool>;

enum Happening {
    Packet {
        to: usize,
        tuple: FourTuple,
        bytes: Vec<u8>,
    },
    Transmitted {
        at: usize,
        conn: ConnId,
        id: SegmentId,
        buf: Buf,
    },
    Wake {
        at: usize,
    },
    TooBig {
        to: usize,
        tuple: FourTuple,
        seq: SeqNum,
        mtu: u32,
    },
}

/// Bytes of an IPv4 header.
const IPV4_HEADER: usize = 20;

pub struct Network {
    pub ends: [Endpoint; 2],
    pub link: Link,
    pub random: Random,
    pub now: Instant,
    pub packets: u64,
    /// Packets that were too large for the link.
    pub dropped_for_size: u64,
    /// Called for each packet that a side puts on the link: `false` loses it.
    pub filter: Filter,
    /// Segments that a burst may have; 0: all go out one by one.
    pub burst: usize,
    to_come: BTreeMap<(Instant, u64), Happening>,
    free_at: [Instant; 2],
    count: u64,
}

impl Network {
    pub fn new(ends: [Endpoint; 2], link: Link, seed: u64) -> Self {
        Self {
            ends,
            link,
            random: Random::new(seed),
            now: Instant::ZERO + Duration::from_secs(1),
            packets: 0,
            dropped_for_size: 0,
            filter: Box::new(|_, _, _| true),
            burst: 0,
            to_come: BTreeMap::new(),
            free_at: [Instant::ZERO; 2],
            count: 0,
        }
    }

    /// Side 0 carries out `plan`; side 1 sends nothing, and closes behind it.
    pub fn one_way(config: Config, plan: Plan, link: Link, seed: u64) -> Self {
        let back = Plan {
            bytes: 0,
            close_after_peer: true,
            ..plan.clone()
        };
        let ends = [
            Endpoint::new(0, config.clone(), plan),
            Endpoint::new(1, config, back),
        ];
        Self::new(ends, link, seed)
    }

    /// Side 0 connects to side 1, which listens.
    pub fn open(&mut self) {
        let local = userspace_net::Endpoint::new(Endpoint::addr(1).into(), 7000);
        self.ends[1].stack.listen(local, 10).unwrap();
        let tuple = FourTuple::new((Endpoint::addr(0).into(), 40_000), local);
        let options = self.ends[0].options;
        let conn = self.ends[0]
            .stack
            .connect(self.now, tuple, options)
            .unwrap();
        self.ends[0].app.conn = Some(conn);
    }

    /// Both sides connect at the same time.
    pub fn open_both(&mut self) {
        let local = |side| userspace_net::Endpoint::new(Endpoint::addr(side).into(), 7000);
        for side in 0..2 {
            let tuple = FourTuple::new(local(side), local(1 - side));
            let options = self.ends[side].options;
            let conn = self.ends[side]
                .stack
                .connect(self.now, tuple, options)
                .unwrap();
            self.ends[side].app.conn = Some(conn);
        }
    }

    /// Runs until nothing is left to happen. Panics after `limit` of virtual time.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        self.run_until(end);
        assert!(self.to_come.is_empty(), "something is left to happen");
        for side in 0..2 {
            assert_eq!(
                self.ends[side].stack.next_deadline(),
                None,
                "a timer is left"
            );
        }
    }

    /// Runs until `end`, or until nothing is left to happen.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            for side in 0..2 {
                self.settle(side);
            }
            let happening = self.to_come.keys().next().map(|&(at, _)| at);
            let deadlines = self.ends.iter().filter_map(|end| end.stack.next_deadline());
            let Some(next) = deadlines.chain(happening).min() else {
                return;
            };
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            for side in 0..2 {
                self.ends[side].stack.advance(self.now);
            }
            while let Some(entry) = self.to_come.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let happening = entry.remove();
                self.happen(happening);
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Packet { to, tuple, bytes } => {
                self.ends[to].receive(self.now, tuple, &bytes);
            }
            Happening::Transmitted { at, conn, id, buf } => {
                let end = &mut self.ends[at];
                if let Some(buf) = end.stack.transmitted(conn, id, buf) {
                    end.buffers.free(buf);
                }
            }
            Happening::Wake { .. } => {}
            Happening::TooBig {
                to,
                tuple,
                seq,
                mtu,
            } => {
                let error = IcmpError::PacketTooBig { mtu };
                self.ends[to].stack.icmp(self.now, tuple, seq, error);
            }
        }
    }

    /// Events, application, then everything that wants to go out.
    fn settle(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.fetch_events();
        let before = end.app.wakes();
        end.run(self.now, &mut self.random);
        for (before, after) in before.into_iter().zip(end.app.wakes()) {
            if let Some(until) = after.filter(|_| before != after) {
                self.schedule(until, Happening::Wake { at: side });
            }
        }
        loop {
            let stack = &mut self.ends[side].stack;
            let segments = match self.burst {
                0 => stack.poll_transmit(self.now).into_iter().collect(),
                most => bursts::next_segments(stack, self.now, most),
            };
            if segments.is_empty() {
                break;
            }
            for transmit in segments {
                self.put_on_link(side, transmit);
            }
        }
        let end = &mut self.ends[side];
        end.fetch_events();
        end.fetch_released();
    }

    fn put_on_link(&mut self, side: usize, transmit: Transmit<Buf>) {
        let bytes = packet::emit(&transmit);
        let Transmit {
            conn,
            tuple,
            header,
            payload,
            fragment_to,
            ..
        } = transmit;
        self.packets += 1;
        let mut refused = false;
        if let Some(payload) = payload {
            refused = self.random.chance(self.link.refuse_per_mille);
            let hold = self.random.below(self.link.hold.as_nanos() as u64 + 1);
            let hold = if refused { 0 } else { hold };
            let done = Happening::Transmitted {
                at: side,
                conn: conn.unwrap(),
                id: payload.id,
                buf: payload.buf,
            };
            self.schedule(self.now + Duration::from_nanos(hold), done);
        }
        let len = bytes.len() - header.header_len();
        assert!(len + header.options.len() <= usize::from(self.ends[side].options.mss));
        // A packet that goes as fragments passes a narrow link if they do.
        let size = fragment_to.map_or(bytes.len() + IPV4_HEADER, |mtu| mtu as usize);
        if !refused && size > self.link.mtu {
            self.too_big(side, tuple, header.seq);
            return;
        }
        let kept = (self.filter)(side, &header, len);
        if refused || !kept || self.random.chance(self.link.lose_per_mille) {
            return;
        }
        if len > 1 && self.random.chance(self.link.split_per_mille) {
            let at = header.header_len() + self.random.within(1, len as u64 - 1) as usize;
            for part in packet::split(tuple, &bytes, at) {
                if !self.random.chance(self.link.lose_per_mille) {
                    self.deliver(side, tuple, part);
                }
            }
            return;
        }
        self.deliver(side, tuple, bytes.clone());
        if self.random.chance(self.link.duplicate_per_mille) {
            self.deliver(side, tuple, bytes);
        }
    }

    /// The link drops a packet for its size, and tells its sender, or not.
    fn too_big(&mut self, to: usize, tuple: FourTuple, seq: SeqNum) {
        self.dropped_for_size += 1;
        if self.random.chance(self.link.icmp_per_mille) {
            let at = self.now + self.link.delay;
            let mtu = self.link.mtu as u32;
            let error = Happening::TooBig {
                to,
                tuple,
                seq,
                mtu,
            };
            self.schedule(at, error);
        }
    }

    fn deliver(&mut self, from: usize, tuple: FourTuple, bytes: Vec<u8>) {
        let start = self.free_at[from].max(self.now) + self.link.spacing;
        self.free_at[from] = start;
        let mut at = start + self.link.delay;
        if self.random.chance(self.link.delay_per_mille) {
            at += Duration::from_nanos(self.random.below(self.link.jitter.as_nanos() as u64 + 1));
        }
        let tuple = FourTuple {
            local: tuple.remote,
            remote: tuple.local,
        };
        self.schedule(
            at,
            Happening::Packet {
                to: 1 - from,
                tuple,
                bytes,
            },
        );
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.count += 1;
        self.to_come.insert((at, self.count), happening);
    }

    /// What must hold after a transfer that ended well.
    pub fn assert_complete(&self) {
        for (side, end) in self.ends.iter().enumerate() {
            end.app.assert_complete(&self.ends[1 - side].app);
            assert_eq!(
                end.stack.resource_usage(),
                ResourceUsage::default(),
                "side {side}"
            );
            assert_eq!(end.buffers.alive(), 0, "side {side}: buffers are left");
            assert_eq!(
                end.buffers.dropped(),
                0,
                "side {side}: buffers were dropped"
            );
        }
    }
}
