//! Established connections, and a peer whose segments are written by hand.

use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant, checksum::PartialSum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, ConnectError, Flags, Options, Outgoing, SackBlock, Segment,
    SeqNum, Stack, TcpHeader, Timestamps,
};

const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };
const IRS: u32 = 1_000_000;

static PAYLOAD: [u8; 1448] = [0; 1448];

/// One peer's side of a connection.
struct Peer {
    tuple: FourTuple,
    conn: ConnId,
    /// The next byte to send, counted from the first.
    sent: u64,
    /// The next sequence number of ours.
    ours: SeqNum,
}

/// A segment that the link brings.
pub struct Arrival {
    tuple: FourTuple,
    conn: ConnId,
    header: TcpHeader,
    len: usize,
}

/// Connections of one stack; most benchmarks use the first.
pub struct Flow {
    stack: Stack<u32>,
    now: Instant,
    peers: Vec<Peer>,
    /// Bytes of ours that are sent and not acknowledged.
    outstanding: u32,
}

fn local() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000)
}

fn config(connections: usize) -> Config {
    Config {
        connections,
        receive_window: 1 << 24,
        send_queue_segments: 8192,
        window_segments: 8192,
        ..Config::default()
    }
}

impl Flow {
    pub fn open() -> Self {
        Self::many(1)
    }

    pub fn many(connections: usize) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut stack = Stack::new(config(connections), [7; 16], now);
        stack.listen(local(), 16).unwrap();
        let mut flow = Self {
            stack,
            now,
            peers: Vec::with_capacity(connections),
            outstanding: 0,
        };
        for index in 0..connections {
            flow.shake_hands(index);
        }
        flow
    }

    fn shake_hands(&mut self, index: usize) {
        let addr = Ipv4Addr::new(198, 19, (index >> 14) as u8, 1);
        let port = 1024 + (index & 0x3fff) as u16;
        let tuple = FourTuple::new(local(), Endpoint::new(addr.into(), port));
        let mut header = TcpHeader {
            source_port: port,
            destination_port: 7000,
            seq: SeqNum(IRS),
            flags: Flags::SYN,
            window: 65_535,
            ..TcpHeader::default()
        };
        header.options = Options {
            mss: Some(1460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some(self.timestamps()),
            ..Options::default()
        };
        let segment = Segment::new(header, &[]);
        self.stack.receive(self.now, tuple, &segment, OPTIONS);
        let syn_ack = self.stack.poll_transmit(self.now).unwrap().header;
        header.flags = Flags::ACK;
        header.seq = SeqNum(IRS + 1);
        header.ack = syn_ack.seq.add(1);
        header.options = Options {
            timestamps: header.options.timestamps,
            ..Options::default()
        };
        let segment = Segment::new(header, &[]);
        let received = self.stack.receive(self.now, tuple, &segment, OPTIONS);
        self.peers.push(Peer {
            tuple,
            conn: received.conn.unwrap(),
            sent: 0,
            ours: header.ack,
        });
        self.drain();
    }

    fn timestamps(&self) -> Timestamps {
        Timestamps {
            value: self.now.as_millis() as u32,
            echo: 1,
        }
    }

    /// A segment of the peer at a byte of its stream.
    pub fn data_header(&self, offset: u64) -> TcpHeader {
        self.header(0, offset, Flags::ACK)
    }

    fn header(&self, flow: usize, offset: u64, flags: Flags) -> TcpHeader {
        let peer = &self.peers[flow];
        TcpHeader {
            source_port: peer.tuple.remote.port,
            destination_port: peer.tuple.local.port,
            seq: SeqNum((IRS + 1).wrapping_add(offset as u32)),
            ack: if flow == 0 {
                SeqNum(peer.ours.0.wrapping_sub(self.outstanding))
            } else {
                peer.ours
            },
            flags,
            window: 65_535,
            urgent: 0,
            options: Options {
                timestamps: Some(self.timestamps()),
                ..Options::default()
            },
        }
    }

    /// The next bytes of random peers, `len` of each.
    pub fn arrivals(
        &mut self,
        count: usize,
        len: usize,
        flags: Flags,
        random: &mut Random,
    ) -> Vec<Arrival> {
        let mut arrival = || {
            let flow = random.below(self.peers.len());
            let header = self.header(flow, self.peers[flow].sent, flags);
            let peer = &mut self.peers[flow];
            peer.sent += len as u64;
            let (tuple, conn) = (peer.tuple, peer.conn);
            Arrival {
                tuple,
                conn,
                header,
                len,
            }
        };
        (0..count).map(|_| arrival()).collect()
    }

    /// Nothing but the look-up: these ends have a connection already.
    pub fn find(&mut self, arrival: &Arrival) {
        let refused = self.stack.connect(self.now, arrival.tuple, OPTIONS);
        assert!(matches!(refused, Err(ConnectError::InUse { .. })));
    }

    /// What is in order is consumed at once.
    pub fn receive(&mut self, arrival: &Arrival) {
        let segment = Segment::new(arrival.header, &PAYLOAD[..arrival.len]);
        let received = self
            .stack
            .receive(self.now, arrival.tuple, &segment, OPTIONS);
        if !received.new.is_empty() {
            self.stack.consumed(arrival.conn, received.in_order_to);
        }
    }

    pub fn receive_next(&mut self, len: usize) {
        self.now += Duration::from_micros(1);
        let header = self.header(0, self.peers[0].sent, Flags::ACK);
        let peer = &mut self.peers[0];
        peer.sent += len as u64;
        let (tuple, conn) = (peer.tuple, peer.conn);
        self.receive(&Arrival {
            tuple,
            conn,
            header,
            len,
        });
    }

    /// Bytes somewhere behind those that came in order.
    pub fn receive_at(&mut self, ahead: u64, len: usize) {
        self.now += Duration::from_micros(1);
        let header = self.header(0, self.peers[0].sent + ahead, Flags::ACK);
        let segment = Segment::new(header, &PAYLOAD[..len]);
        let tuple = self.peers[0].tuple;
        self.stack.receive(self.now, tuple, &segment, OPTIONS);
    }

    /// All of the last 32 segments has come.
    pub fn consume(&mut self) {
        let peer = &mut self.peers[0];
        peer.sent += 32 * 1448;
        self.stack.consumed(peer.conn, peer.sent);
        self.drain();
    }

    /// Everything that wants to go out does, and its buffers are back.
    pub fn drain(&mut self) {
        while let Some(transmit) = self.stack.poll_transmit(self.now) {
            if let (Some(conn), Some(payload)) = (transmit.conn, transmit.payload) {
                let _ = self.stack.transmitted(conn, payload.id, payload.buf);
            }
        }
        while self.stack.poll_event().is_some() {}
        while self.stack.poll_released().is_some() {}
    }

    pub fn send(&mut self, len: u32) {
        let outgoing = Outgoing {
            buf: 0,
            len,
            payload_sum: PartialSum::ZERO,
        };
        let peer = &mut self.peers[0];
        self.stack.send(peer.conn, self.now, outgoing).unwrap();
        peer.ours = peer.ours.add(len);
        self.outstanding += len;
    }

    /// The peer acknowledges so many bytes more.
    pub fn acknowledge(&mut self, bytes: u32) {
        self.now += Duration::from_micros(1);
        self.outstanding -= bytes;
        self.give_ack(None);
        while self.stack.poll_released().is_some() {}
    }

    pub fn acknowledge_all(&mut self) {
        self.acknowledge(self.outstanding);
        self.drain();
    }

    /// The peer has nothing new in order, and bytes `from`..`to` behind that.
    pub fn selectively_acknowledge(&mut self, from: u32, to: u32) {
        self.now += Duration::from_micros(1);
        let una = self.peers[0].ours.0.wrapping_sub(self.outstanding);
        self.give_ack(Some(SackBlock {
            left: SeqNum(una.wrapping_add(from)),
            right: SeqNum(una.wrapping_add(to)),
        }));
    }

    fn give_ack(&mut self, block: Option<SackBlock>) {
        let mut header = self.header(0, self.peers[0].sent, Flags::ACK);
        if let Some(block) = block {
            header.options.sack.push(block);
        }
        let segment = Segment::new(header, &[]);
        let tuple = self.peers[0].tuple;
        self.stack.receive(self.now, tuple, &segment, OPTIONS);
    }

    /// Lets the congestion window grow until so many segments are not in its way.
    pub fn widen(&mut self, segments: usize) {
        let conn = self.peers[0].conn;
        while self.stack.send_room(conn) < segments * 1448 {
            while self.stack.send_room(conn) >= 1448 {
                self.send(1448);
            }
            self.drain();
            self.acknowledge_all();
        }
    }
}

/// xorshift64*
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}
