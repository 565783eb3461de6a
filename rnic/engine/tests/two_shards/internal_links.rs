//! Two shards of one process, each with an interface of its own, joined by an internal link.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic_engine::command::{Answer, Command};
use rnic_engine::shard::{Shard, ShardConfig, Siblings, untagged_mtu};
use rnic_ipc::capture::Filter;
use rnic_ipc::control::{DisconnectReason, MpaOptions};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_net::{AllowList, IcmpReport, ListOwner, Path, PathDefaults, Quoted, VlanId};
use rnic_xsk::{ChunkSize, FramePool, InternalEnd, InternalPort, Port, Umem};
use userspace_net::{FourTuple, Instant};
use userspace_tcp::{Flags, IcmpError, Segment, SeqNum, TcpHeader};

use crate::hostile::Tape;
use crate::loopback::from_the_link;
use crate::side::{CLIENT, Rings, Side, SideConfig, pattern};

const PATIENCE: Duration = Duration::from_secs(600);
const FRAMES: u32 = 1024;
const DEPTH: u32 = 1024;
const LEN: usize = 1 << 20;

/// A host of two interfaces; the test is what these lead to.
struct Host {
    sides: [Side<InternalPort>; 2],
    outside: [Outside; 2],
    mtu: u32,
    now: Instant,
}

/// The far end of an interface.
struct Outside {
    port: InternalPort,
    pool: FramePool,
}

impl Outside {
    fn send(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.alloc().unwrap();
        let umem = self.port.umem().clone();
        umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        self.port.transmit(frame, 0).unwrap();
        self.port.flush().unwrap();
    }

    fn came(&mut self) -> usize {
        self.port.receive(&mut self.pool, &mut Vec::new(), 64)
    }
}

/// An interface whose shard has no internal link yet.
fn interface(
    number: u8,
    address: &str,
    (umem, pool): (&Umem, FramePool),
    config: &ShardConfig,
) -> (Side<InternalPort>, Outside) {
    let (theirs, far_pool) = Umem::heap(64, ChunkSize::Bytes2048);
    let (interface, far) = InternalPort::pair(umem, &theirs, 64).unwrap();
    let config = ShardConfig {
        receive_reserve: FRAMES as usize / 8,
        ..config.clone()
    };
    let shard = Shard::new(config, pool, vec![interface], Instant::ZERO);
    let address: SocketAddr = address.parse().unwrap();
    let frames = umem.frames();
    let mut side = Side::over(number, address, shard, None, frames, Rings::default());
    side.internal_link = Some(0);
    let outside = Outside {
        port: far,
        pool: far_pool,
    };
    (side, outside)
}

/// Joins two interfaces by their first internal link. Returns the ends that were there.
fn join(sides: &mut [Side<InternalPort>; 2], now: Instant) -> [Option<Box<InternalPort>>; 2] {
    let [umem_a, umem_b] = sides
        .each_ref()
        .map(|side| side.shard.ports()[0].umem().clone());
    let frame_bytes = [umem_a, umem_b].map(|umem| umem.frame_capacity());
    let mtu = untagged_mtu(frame_bytes[0].min(frame_bytes[1]));
    let (a, b) = InternalEnd::pair(frame_bytes, DEPTH).unwrap();
    let mut ends = [Some(a), Some(b)];
    let mut before = [None, None];
    for (side, (end, before)) in sides.iter_mut().zip(ends.iter_mut().zip(&mut before)) {
        let end = end.take().unwrap();
        let command = Command::SetInternalLink { link: 0, end };
        *before = match side.shard.execute(command, now).unwrap() {
            Answer::InternalLink(before) => before,
            other => panic!("{other:?}"),
        };
        side.mtu = mtu;
    }
    before
}

impl Host {
    fn new(addresses: [&str; 2], chunks: [ChunkSize; 2], config: &ShardConfig) -> Self {
        let made = [0, 1].map(|index| {
            let (umem, pool) = Umem::heap(FRAMES, chunks[index]);
            interface(index as u8 + 1, addresses[index], (&umem, pool), config)
        });
        let [(a, outside_a), (b, outside_b)] = made;
        let mut sides = [a, b];
        let before = join(&mut sides, Instant::ZERO);
        assert!(before.iter().all(Option::is_none));
        Self {
            mtu: sides[0].mtu,
            sides,
            outside: [outside_a, outside_b],
            now: Instant::from_nanos(1_000_000),
        }
    }

    fn v4() -> Self {
        let addresses = ["198.18.0.1:7174", "198.18.1.1:7174"];
        let config = SideConfig::default().shard;
        Self::new(addresses, [ChunkSize::Bytes2048; 2], &config)
    }

    /// The second interface is another shard's from now on, which knows of nothing.
    fn open_second_again(&mut self) {
        let (umem, pool) = Umem::heap(FRAMES, ChunkSize::Bytes4096);
        let config = SideConfig::default().shard;
        let (side, outside) = interface(2, "198.18.1.1:7174", (&umem, pool), &config);
        self.sides[1] = side;
        self.outside[1] = outside;
        let ends = join(&mut self.sides, self.now);
        assert!(ends[0].is_some() && ends[1].is_none());
    }

    fn settle(&mut self) {
        let now = self.now;
        loop {
            let mut worked = false;
            for side in &mut self.sides {
                worked |= side.shard.poll(now);
                side.collect();
            }
            if !worked {
                return;
            }
        }
    }

    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        self.settle();
        while !done(self) {
            let deadlines = self.sides.iter_mut();
            let next = deadlines.filter_map(|side| side.shard.next_deadline());
            let next = next.min().unwrap_or(end);
            if next >= end {
                self.now = end;
                self.settle();
                return done(self);
            }
            self.now = next.max(self.now + Duration::from_nanos(1));
            self.settle();
        }
        true
    }

    /// From the first interface's address to the second's.
    fn connect(&mut self) -> (QpNum, QpNum) {
        let now = self.now;
        let [a, b] = &mut self.sides;
        b.listen(16, now);
        let (active, passive) = (a.create_qp(), b.create_qp());
        let path = a.path_to(b);
        let mpa = MpaOptions::default();
        a.connect(active, 40_001, b.address, path, mpa, b"hello", now)
            .unwrap();
        let connected = self.run_until(Duration::from_secs(1), |host| {
            if let Some((request, _, data)) = host.sides[1].take_request() {
                assert_eq!(data, b"hello");
                let accept = Command::Accept {
                    request,
                    qp: passive,
                    mpa,
                    private_data: b"welcome".to_vec(),
                };
                host.sides[1].shard.execute(accept, host.now).unwrap();
            }
            let [a, b] = &host.sides;
            a.is_established(active) && b.is_established(passive)
        });
        assert!(connected, "{:?}", self.sides[0].events);
        (active, passive)
    }

    /// A Write, a Send and a Read each way.
    fn transfer(&mut self, qps: (QpNum, QpNum), first: u64) {
        for (from, qp, peer) in [(0, qps.0, qps.1), (1, qps.1, qps.0)] {
            let id = first + 10 * from as u64;
            let to = 1 - from;
            let stag = self.sides[to].stag;
            self.sides[from].fill(0, LEN, id);
            self.sides[to].post_recv(peer, id + 1, 4 << 20, LEN);
            let posting = &mut self.sides[from];
            posting.post_work(qp, WrOpcode::Write, id + 2, 0, (stag, 1 << 20), LEN);
            posting.post_work(qp, WrOpcode::Send, id + 3, 0, (stag, 0), LEN);
            posting.post_work(qp, WrOpcode::Read, id + 4, 6 << 20, (stag, 1 << 20), LEN);
            assert!(self.run_until(PATIENCE, |host| {
                let told = host.sides[to].completion(id + 1).is_some();
                told && host.sides[from].completion(id + 4).is_some()
            }));
            for (side, id) in [(to, id + 1), (from, id + 2), (from, id + 3), (from, id + 4)] {
                let status = self.sides[side].completion(id).unwrap().status;
                assert_eq!(WcStatus::from_u8(status), Some(WcStatus::Success), "{id}");
            }
            let there = |side: &Side<_>, offset| side.read(offset, LEN) == pattern(LEN, id);
            assert!(there(&self.sides[to], 1 << 20), "Write");
            assert!(there(&self.sides[to], 4 << 20), "Send");
            assert!(there(&self.sides[from], 6 << 20), "Read");
        }
    }

    fn assert_nothing_is_left(&mut self) {
        self.run_until(PATIENCE, |_| false);
        for side in &self.sides {
            let levels = side.shard.levels();
            assert_eq!(levels.frames_free, side.frames, "{levels:?}");
            assert_eq!((levels.frames_held, levels.connections), (0, 0));
        }
    }

    fn end(&mut self, (active, passive): (QpNum, QpNum)) {
        let disconnect = Command::Disconnect {
            qp: active,
            abort: false,
        };
        self.sides[0].shard.execute(disconnect, self.now).unwrap();
        assert!(self.run_until(Duration::from_secs(1), |host| {
            let [a, b] = &host.sides;
            let ended = [a.disconnected(active), b.disconnected(passive)];
            ended == [Some(DisconnectReason::Graceful); 2]
        }));
    }
}

#[test]
fn every_operation_goes_over_an_internal_link_and_nothing_over_the_interfaces() {
    for addresses in [
        ["198.18.0.1:7174", "198.18.1.1:7174"],
        ["[2001:db8::1]:7174", "[2001:db8:1::1]:7174"],
    ] {
        use ChunkSize::{Bytes2048, Bytes4096, ThreeOf4096};
        for (chunks, mtu) in [
            ([Bytes2048, Bytes2048], 1778),
            ([Bytes4096, Bytes2048], 1778),
            ([ThreeOf4096, ThreeOf4096], 11_506),
        ] {
            let mut host = Host::new(addresses, chunks, &SideConfig::default().shard);
            assert_eq!(host.mtu, mtu);
            let qps = host.connect();
            host.transfer(qps, 100);
            for side in 0..2 {
                assert_eq!(host.sides[side].counter("tcp_retransmits"), 0);
                assert_eq!(host.outside[side].came(), 0, "the interface has some of it");
                let [interface, link] = host.sides[side].shard.ports() else {
                    panic!("two ports");
                };
                let (interface, link) = (interface.statistics(), link.statistics());
                assert_eq!(interface.transmitted + interface.received, 0);
                // As large as the smaller frames of the two allow, whichever side began.
                let most = link.transmitted_bytes / link.transmitted;
                assert!(most > u64::from(mtu) / 2, "frames of {most} bytes");
                assert_eq!(link.send_dropped + link.receive_no_frame, 0);
            }
            host.end(qps);
            host.assert_nothing_is_left();
        }
    }
}

/// What is over an internal link has no route or neighbour that could move it, and no VLAN.
#[test]
fn neither_vlans_nor_moved_paths_touch_a_connection_over_an_internal_link() {
    let mut config = SideConfig::default().shard;
    let vlan = VlanId::new(7).unwrap();
    assert!(config.vlans.add("198.18.0.0/15".parse().unwrap(), vlan));
    let addresses = ["198.18.0.1:7174", "198.18.1.1:7174"];
    let mut host = Host::new(addresses, [ChunkSize::Bytes2048; 2], &config);
    let qps = host.connect();
    let now = host.now;
    let [a, b] = &mut host.sides;
    let moved = Path {
        dst_mac: [2, 0, 0, 0, 9, 9],
        mtu: 600,
        ..a.path_to(b)
    };
    let paths = a.shard.execute(Command::QueryPaths, now).unwrap();
    assert!(matches!(paths, Answer::Paths(paths) if paths.is_empty()));
    let (local, remote) = (a.address.ip(), b.address.ip());
    let command = Command::MovePath {
        local,
        remote,
        path: moved,
    };
    a.shard.execute(command, now).unwrap();
    assert_eq!(a.counter("path_moves"), 0);
    host.transfer(qps, 100);
    assert_eq!(
        host.sides.each_mut().map(|it| it.counter("rx_wrong_vlan")),
        [0, 0]
    );
}

/// A host on a network can say that it is the other interface; nobody takes it for that.
#[test]
fn what_comes_by_an_interface_is_never_for_a_connection_over_an_internal_link() {
    let mut host = Host::v4();
    let qps = host.connect();
    let ends = [(40_001, 7174), (7174, 40_001)];
    let addresses = host.sides.each_ref().map(|side| side.address.ip());
    let mut before = 0;
    for (to, (local, remote)) in ends.into_iter().enumerate() {
        let source = SocketAddr::new(addresses[1 - to], remote);
        let own = SocketAddr::new(addresses[to], local);
        for flags in [Flags::RST, Flags::SYN, Flags::ACK, Flags::FIN | Flags::ACK] {
            // Every tenth of all sequence numbers: were it looked at, some RST would be taken.
            for seq in (0..=u32::MAX).step_by(u32::MAX as usize / 10) {
                let header = TcpHeader {
                    flags,
                    seq: SeqNum(seq),
                    ..TcpHeader::default()
                };
                host.outside[to].send(&from_the_link(source, own, &header));
                host.settle();
                before += 1;
                let martians = host
                    .sides
                    .each_mut()
                    .map(|side| side.counter("rx_martians"));
                assert_eq!(martians.iter().sum::<u64>(), before);
            }
        }
        assert_eq!(host.outside[to].came(), 0, "no answer");
    }
    host.transfer(qps, 100);
    host.end(qps);
}

/// Nor the reverse: what has the ends of a connection over the interface is not for it.
#[test]
fn what_comes_by_an_internal_link_is_never_for_a_connection_over_an_interface() {
    let mut host = Host::v4();
    let (now, mpa) = (host.now, MpaOptions::default());
    let [a, b] = &mut host.sides;
    // Some host outside has the second interface's address, as the first one's routes have it.
    let outward = a.create_qp();
    a.internal_link = None;
    let path = a.path_to(b);
    a.connect(outward, 40_001, b.address, path, mpa, b"", now)
        .unwrap();
    let (inward, path) = (b.create_qp(), b.path_to(a));
    let to = SocketAddr::new(a.address.ip(), 40_001);
    b.connect(inward, 7174, to, path, mpa, b"", now).unwrap();
    host.settle();
    assert_eq!(host.sides[0].counter("rx_martians"), 1);
    assert_eq!(host.outside[0].came(), 1, "the SYN alone");
    let [a, b] = &host.sides;
    assert!(!a.is_established(outward) && !b.is_established(inward));
}

/// Whatever flow the other shard of the interface has.
#[test]
fn what_comes_by_an_internal_link_is_not_handed_to_a_sibling() {
    let mut host = Host::v4();
    let mut siblings = Siblings::among(2, 64, 16, [7; 16]).unwrap().into_iter();
    host.sides[1].shard.join(siblings.next().unwrap());
    let (umem, pool) = Umem::heap(FRAMES, ChunkSize::Bytes2048);
    let config = SideConfig::default().shard;
    let address = host.sides[1].address.to_string();
    let (mut other, _outside) = interface(3, &address, (&umem, pool), &config);
    other.shard.join(siblings.next().unwrap());
    other.internal_link = None;
    let to = SocketAddr::new(host.sides[0].address.ip(), 40_001);
    let (qp, path) = (other.create_qp(), other.path_to(&host.sides[0]));
    let mpa = MpaOptions::default();
    other
        .connect(qp, 7174, to, path, mpa, b"", host.now)
        .unwrap();
    let qps = host.connect();
    host.transfer(qps, 100);
    host.end(qps);
    assert_eq!(host.sides[1].shard.handover().given, 0);
}

/// There is no router between the two, whoever says that he is one.
#[test]
fn an_icmp_error_changes_nothing_of_a_connection_over_an_internal_link() {
    let mut host = Host::v4();
    let qps = host.connect();
    let frames = Arc::new(Mutex::new(Vec::new()));
    let capture = Command::AddCapture {
        number: 0,
        filter: Filter::default(),
        sink: Box::new(Tape(Arc::clone(&frames))),
    };
    let (now, stag) = (host.now, host.sides[1].stag);
    let side = &mut host.sides[0];
    side.shard.execute(capture, now).unwrap();
    side.post_work(qps.0, WrOpcode::Write, 1, 0, (stag, 1 << 20), LEN);
    side.shard.poll(now);
    let (_, sent) = frames
        .lock()
        .unwrap()
        .pop()
        .expect("a segment is under way");
    let parsed = rnic_net::parse(&sent, &PathDefaults::new(1500)).unwrap();
    let header = Segment::parse(&sent[parsed.data]).unwrap().header;
    let own = SocketAddr::new(side.address.ip(), header.source_port);
    let report = IcmpReport {
        tuple: FourTuple::new(own, host.sides[1].address),
        quoted: Quoted::Segment { seq: header.seq },
        error: IcmpError::PacketTooBig { mtu: 600 },
    };
    let reports = vec![report];
    let command = Command::IcmpErrors { reports };
    host.sides[0].shard.execute(command, now).unwrap();
    assert_eq!(host.sides[0].counter("icmp_ignored"), 1);
    host.transfer(qps, 100);
    assert_eq!(host.sides[0].counter("mss_changes"), 0);
}

/// A receiver that stops costs its sender nothing that is for others.
#[test]
fn a_shard_that_does_not_run_holds_up_nothing_but_its_own_connections() {
    let mut host = Host::v4();
    let (active, _) = host.connect();
    let stag = host.sides[1].stag;
    for id in 0..8 {
        host.sides[0].post_work(active, WrOpcode::Write, id, 0, (stag, 0), LEN);
    }
    // Ten seconds in which only the first shard runs: its connection sends again and again.
    let end = host.now + Duration::from_secs(10);
    while host.now < end {
        let now = host.now;
        let side = &mut host.sides[0];
        while side.shard.poll(now) {}
        let next = side.shard.next_deadline().unwrap_or(end);
        host.now = next.max(now + Duration::from_millis(1));
    }
    let levels = host.sides[0].shard.levels();
    assert!(levels.frames_free > host.sides[0].frames / 8, "{levels:?}");
    // It still has room for the interface, by which a stranger asks and is answered.
    let stranger = "198.18.0.9:999".parse().unwrap();
    let header = TcpHeader {
        flags: Flags::SYN,
        ..TcpHeader::default()
    };
    let own = host.sides[0].address;
    host.outside[0].send(&from_the_link(stranger, own, &header));
    let now = host.now;
    while host.sides[0].shard.poll(now) {}
    assert_eq!(host.outside[0].came(), 1, "no answer to a stranger");
    // And when the other runs again, all arrives.
    assert!(host.run_until(PATIENCE, |host| host.sides[0].completion(7).is_some()));
}

#[test]
fn allow_lists_of_peers_are_not_for_the_other_interface_of_the_host() {
    let mut host = Host::v4();
    let nobody = AllowList::new(Vec::new()).unwrap();
    host.sides[1].peers.add(ListOwner::Interface, nobody);
    host.connect();
    assert_eq!(host.sides[1].counter("peers_refused_interface"), 0);
}

/// The second interface is opened again.
#[test]
fn another_link_takes_the_place_of_one_whose_other_end_is_gone() {
    let mut host = Host::v4();
    let qps = host.connect();
    host.transfer(qps, 100);
    let (active, _) = qps;
    let stag = host.sides[1].stag;
    for id in 0..8 {
        host.sides[0].post_work(active, WrOpcode::Write, id, 0, (stag, 0), LEN);
    }
    // Frames are under way, and some more are about to be.
    host.sides[0].shard.poll(host.now);
    let transmitted = |host: &Host| host.sides[0].shard.ports()[1].statistics().transmitted;
    let before = transmitted(&host);

    host.open_second_again();
    // Nothing came by the new link yet.
    host.sides[0].collect();
    let reason = host.sides[0].disconnected(active);
    assert_eq!(reason, Some(DisconnectReason::Reset));
    host.settle();
    host.run_until(PATIENCE, |_| false);
    let levels = host.sides[0].shard.levels();
    assert_eq!(levels.frames_free, host.sides[0].frames, "{levels:?}");

    let qps = host.connect();
    host.transfer(qps, 200);
    assert!(transmitted(&host) > before, "its counts go on");
    host.end(qps);
    host.assert_nothing_is_left();
}

/// As above, when no poll has come since the last frame was sent.
#[test]
fn frames_that_a_replaced_link_has_sent_are_taken_back_first() {
    let mut host = Host::v4();
    let (active, _) = host.connect();
    // What is under way has others wait for the next poll.
    host.run_until(Duration::from_secs(1), |_| false);
    let (now, stag) = (host.now, host.sides[1].stag);
    host.sides[0].push_work(active, WrOpcode::Write, 1, 0, (stag, 0), 64);
    let shard = &mut host.sides[0].shard;
    assert!(shard.transmit_posted(CLIENT, active, || now));
    host.open_second_again();
    host.run_until(PATIENCE, |_| false);
    let levels = host.sides[0].shard.levels();
    assert_eq!(levels.frames_free, host.sides[0].frames, "{levels:?}");
}

#[test]
fn a_link_of_a_number_that_is_not_the_next_is_refused() {
    let mut host = Host::v4();
    let (end, _other) = InternalEnd::pair([2048; 2], DEPTH).unwrap();
    let command = Command::SetInternalLink { link: 2, end };
    let refused = host.sides[0].shard.execute(command, host.now);
    let error = refused.unwrap_err().to_string();
    assert_eq!(error, "internal link 2 asked, but 1 is the next");
}
