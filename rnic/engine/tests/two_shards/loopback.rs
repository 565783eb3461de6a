//! Connections between addresses of one host: one shard is both ends, and the same frame is sent and
//! received.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_engine::shard::{Shard, ShardConfig, untagged_mtu};
use rnic_ipc::capture::Filter;
use rnic_ipc::control::{ConnectSpec, DisconnectReason, Event, MarkerUse, MpaOptions, QpState};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_net::{AllowList, IcmpReport, ListOwner, Path, PathDefaults, Payload, PeerRules, Quoted};
use rnic_proto::Stag;
use rnic_xsk::{ChunkSize, MemoryPort, Umem};
use userspace_net::{Ecn, FourTuple, Instant};
use userspace_tcp::{Flags, IcmpError, Segment, TcpHeader};

use crate::hostile::Tape;
use crate::impairment::Impairment;
use crate::side::{CLIENT, LISTENER, Rings, Side, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);
const FRAMES: u32 = 512;

/// One host and time; its link, if it has one, leads to the test.
struct Host {
    side: Side,
    now: Instant,
    next_port: u16,
    /// Where the next connection is from, if not from the side's address.
    from: Option<IpAddr>,
}

fn config() -> ShardConfig {
    let mut config = SideConfig::default().shard;
    config.receive_reserve = FRAMES as usize / 4;
    config
}

impl Host {
    fn new() -> Self {
        Self::with(config(), "127.0.0.1:7174", ChunkSize::Bytes16384)
    }

    fn with(config: ShardConfig, address: &str, chunk: ChunkSize) -> Self {
        let (umem, pool) = Umem::heap(FRAMES, chunk);
        let mtu = untagged_mtu(umem.frame_capacity());
        let frames = umem.frames();
        let shard = Shard::<MemoryPort>::loopback_only(config, umem, pool, Instant::ZERO);
        let address: SocketAddr = address.parse().unwrap();
        let mut side = Side::over(1, address, shard, None, frames, Rings::default());
        side.mtu = mtu;
        Self::of(side)
    }

    fn beside_a_link() -> Self {
        let address = "198.18.0.1:7174".parse().unwrap();
        let mut side = Side::new(1, address, SideConfig::default());
        side.mtu = 1500;
        Self::of(side)
    }

    fn of(side: Side) -> Self {
        Self {
            side,
            now: Instant::from_nanos(1_000_000),
            next_port: 40_000,
            from: None,
        }
    }

    fn settle(&mut self) {
        let now = self.now;
        loop {
            let worked = self.side.shard.poll(now);
            self.side.collect();
            if !worked {
                return;
            }
        }
    }

    /// Runs until `done`, for at most `limit` of virtual time.
    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        self.settle();
        while !done(self) {
            let next = self.side.shard.next_deadline().unwrap_or(end);
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

    fn listen(&mut self) {
        self.side.listen(16, self.now);
    }

    fn start_connect(&mut self, mpa: MpaOptions, data: &[u8]) -> QpNum {
        let qp = self.side.create_qp();
        self.next_port += 1;
        let (port, remote) = (self.next_port, self.side.address);
        let local = SocketAddr::new(self.from.unwrap_or(remote.ip()), port);
        let connect = Command::Connect {
            qp,
            spec: ConnectSpec {
                remote,
                local: Some(local.ip()),
                local_port: local.port(),
                transport: rnic_ipc::control::Transport::Tcp,
                mpa,
                private_data: data.to_vec(),
            },
            local,
            path: Path::loopback(self.side.mtu),
            internal_link: None,
            peers: PeerRules::default(),
        };
        self.side.shard.execute(connect, self.now).unwrap();
        qp
    }

    fn connect(&mut self, ours: MpaOptions, theirs: MpaOptions) -> (QpNum, QpNum) {
        let active = self.start_connect(ours, b"hello");
        let passive = self.side.create_qp();
        let connected = self.run_until(Duration::from_secs(1), |host| {
            if let Some((request, _, data)) = host.side.take_request() {
                assert_eq!(data, b"hello");
                let accept = Command::Accept {
                    request,
                    qp: passive,
                    mpa: theirs,
                    private_data: b"welcome".to_vec(),
                };
                host.side.shard.execute(accept, host.now).unwrap();
            }
            host.side.is_established(active) && host.side.is_established(passive)
        });
        assert!(connected, "{:?}", self.side.events);
        (active, passive)
    }

    fn expect(&self, wr_id: u64) -> u32 {
        let completion = self.side.completion(wr_id).unwrap();
        let status = WcStatus::from_u8(completion.status);
        assert_eq!(status, Some(WcStatus::Success), "{completion:?}");
        completion.byte_len
    }

    fn assert_nothing_is_left(&mut self) {
        self.run_until(PATIENCE, |_| false);
        let levels = self.side.shard.levels();
        assert_eq!(levels.frames_free, self.side.frames, "{levels:?}");
        assert_eq!(levels.frames_held, 0, "{levels:?}");
        assert_eq!(levels.connections, 0, "{levels:?}");
    }
}

fn every_operation(host: &mut Host, (active, passive): (QpNum, QpNum)) {
    let stag = host.side.stag;
    for (index, len) in [0, 1, 64, 4096, 16_000, 65_536, 1_000_001]
        .into_iter()
        .enumerate()
    {
        let id = 1000 + index as u64 * 10;
        let side = &mut host.side;
        side.fill(0, len, id);
        side.post_recv(passive, id + 1, 4 << 20, 2 << 20);
        side.post_work(active, WrOpcode::Write, id + 2, 0, (stag, 1 << 20), len);
        side.post_work(active, WrOpcode::Send, id + 3, 0, (stag, 0), len);
        let sent = host.run_until(PATIENCE, |host| {
            host.side.completion(id + 1).is_some() && host.side.completion(id + 3).is_some()
        });
        assert!(sent, "Send of {len}: {:?}", host.side.events);
        host.expect(id + 2);
        host.expect(id + 3);
        assert_eq!(host.expect(id + 1) as usize, len);
        assert!(host.side.read(1 << 20, len) == pattern(len, id), "Write");
        assert!(host.side.read(4 << 20, len) == pattern(len, id), "Send");
        let (from, to) = ((stag, 1 << 20), 6 << 20);
        host.side
            .post_work(active, WrOpcode::Read, id + 4, to, from, len);
        assert!(host.run_until(PATIENCE, |host| host.side.completion(id + 4).is_some()));
        assert_eq!(host.expect(id + 4) as usize, len);
        assert!(host.side.read(6 << 20, len) == pattern(len, id), "Read");
    }
}

fn end(host: &mut Host, (active, passive): (QpNum, QpNum)) {
    let disconnect = Command::Disconnect {
        qp: active,
        abort: false,
    };
    host.side.shard.execute(disconnect, host.now).unwrap();
    assert!(host.run_until(Duration::from_secs(1), |host| {
        host.side.disconnected(active).is_some() && host.side.disconnected(passive).is_some()
    }));
    for qp in [active, passive] {
        assert_eq!(host.side.disconnected(qp), Some(DisconnectReason::Graceful));
    }
}

#[test]
fn over_the_loopback_every_operation_arrives_and_every_frame_comes_back() {
    for address in ["127.0.0.1:7174", "[::1]:7174", "198.18.0.1:7174"] {
        for markers in [MarkerUse::Off, MarkerUse::Require] {
            let mut host = Host::with(config(), address, ChunkSize::Bytes16384);
            host.listen();
            let mpa = MpaOptions {
                markers,
                ..MpaOptions::default()
            };
            let qps = host.connect(mpa, mpa);
            every_operation(&mut host, qps);
            assert_eq!(host.side.counter("tcp_retransmits"), 0);
            end(&mut host, qps);
            host.assert_nothing_is_left();
        }
    }
}

/// The frames of an interface, wide ones among them, are the loopback's too.
#[test]
fn the_loopback_takes_frames_of_every_chunk_size() {
    for chunk in [
        ChunkSize::Bytes2048,
        ChunkSize::Bytes4096,
        ChunkSize::ThreeOf4096,
    ] {
        let mut host = Host::with(config(), "127.0.0.1:7174", chunk);
        host.listen();
        let qps = host.connect(MpaOptions::default(), MpaOptions::default());
        every_operation(&mut host, qps);
        end(&mut host, qps);
        host.assert_nothing_is_left();
    }
}

#[test]
fn over_the_loopback_no_crc_is_agreed_on_whoever_asks_for_it() {
    let mut host = Host::new();
    host.listen();
    let mpa = MpaOptions {
        crc: true,
        ..MpaOptions::default()
    };
    host.connect(mpa, mpa);
    let agreed: Vec<_> = host
        .side
        .events
        .iter()
        .filter_map(|event| match event {
            ShardEvent::Client {
                event: Event::Established { mpa, .. },
                ..
            } => Some(mpa.crc),
            _ => None,
        })
        .collect();
    assert_eq!(agreed, [false, false]);
}

#[test]
fn a_rejection_over_the_loopback_brings_its_private_data() {
    let mut host = Host::new();
    host.listen();
    let qp = host.start_connect(MpaOptions::default(), b"please");
    let mut told = None;
    assert!(host.run_until(Duration::from_secs(1), |host| {
        if let Some((request, _, data)) = host.side.take_request() {
            assert_eq!(data, b"please");
            let private_data = b"no".to_vec();
            let reject = Command::Reject {
                request,
                private_data,
            };
            host.side.shard.execute(reject, host.now).unwrap();
        }
        told = host.side.events.iter().find_map(|event| match event {
            ShardEvent::Client {
                event: Event::Rejected {
                    qp, private_data, ..
                },
                ..
            } => Some((*qp, private_data.clone())),
            _ => None,
        });
        told.is_some()
    }));
    assert_eq!(told, Some((qp, b"no".to_vec())));
    host.assert_nothing_is_left();
}

#[test]
fn a_connection_to_a_port_of_the_loopback_that_nobody_listens_at_is_refused_at_once() {
    let mut host = Host::new();
    let qp = host.start_connect(MpaOptions::default(), b"");
    assert!(host.run_until(Duration::from_millis(1), |host| {
        host.side.events.iter().any(|event| {
            matches!(
                event,
                ShardEvent::Client {
                    event: Event::ConnectFailed { qp: of, reason: DisconnectReason::Refused, .. },
                    ..
                } if *of == qp
            )
        })
    }));
    host.assert_nothing_is_left();
}

/// What the peer may not write is answered by a Terminate, as over a link.
#[test]
fn a_write_beyond_the_region_ends_both_ends_of_a_loopback_connection() {
    let mut host = Host::new();
    host.listen();
    let (active, passive) = host.connect(MpaOptions::default(), MpaOptions::default());
    let stag = host.side.stag;
    let beyond = crate::side::MEMORY;
    host.side
        .post_work(active, WrOpcode::Write, 1, 0, (stag, beyond), 64);
    assert!(host.run_until(Duration::from_secs(30), |host| {
        host.side.disconnected(active).is_some() && host.side.disconnected(passive).is_some()
    }));
    let ended = [active, passive].map(|qp| host.side.disconnected(qp));
    assert!(matches!(
        ended,
        [
            Some(DisconnectReason::TerminateReceived { .. }),
            Some(DisconnectReason::TerminateSent { .. })
        ]
    ));
    host.assert_nothing_is_left();
}

/// Whoever tries STags of a program on the same host, which may name any of the host's addresses, has to
/// wait as any peer.
#[test]
fn a_program_that_tries_stags_over_the_loopback_has_to_wait_whatever_address_it_names() {
    let mut host = Host::new();
    host.listen();
    for number in 1..=16 {
        host.from = Some(IpAddr::from([127, 0, 1, number]));
        let (active, passive) = host.connect(MpaOptions::default(), MpaOptions::default());
        assert_eq!(host.side.counter("stag_scan_limit"), 0);
        let guess = (Stag(0x1234_5678), 0);
        host.side
            .post_work(active, WrOpcode::Write, number.into(), 0, guess, 1);
        assert!(host.run_until(Duration::from_secs(30), |host| {
            host.side.disconnected(active).is_some() && host.side.disconnected(passive).is_some()
        }));
        for qp in [active, passive] {
            let command = Command::RemoveQp { qp };
            host.side.shard.execute(command, host.now).unwrap();
        }
    }
    host.from = Some(IpAddr::from([127, 0, 1, 17]));
    let qp = host.start_connect(MpaOptions::default(), b"");
    assert!(host.run_until(Duration::from_secs(1), |host| {
        host.side
            .client_events()
            .any(|event| matches!(event, Event::ConnectFailed { qp: of, .. } if *of == qp))
    }));
    assert_eq!(host.side.counter("stag_scan_limit"), 1);
}

/// An ICMP error about a connection of the loopback is somebody's who is not on its way.
#[test]
fn an_icmp_error_changes_nothing_of_a_loopback_connection() {
    let mut host = Host::beside_a_link();
    host.listen();
    let qps = host.connect(MpaOptions::default(), MpaOptions::default());
    let frames = Arc::new(Mutex::new(Vec::new()));
    let capture = Command::AddCapture {
        number: 0,
        filter: Filter::default(),
        sink: Box::new(Tape(Arc::clone(&frames))),
    };
    let now = host.now;
    host.side.shard.execute(capture, now).unwrap();
    let stag = host.side.stag;
    host.side
        .post_work(qps.0, WrOpcode::Write, 1, 0, (stag, 1 << 20), 1 << 20);
    host.side.shard.poll(now);
    let active = SocketAddr::new(host.side.address.ip(), host.next_port);
    let sent = frames
        .lock()
        .unwrap()
        .pop()
        .expect("a segment is under way");
    let (_, sent) = sent;
    let parsed = rnic_net::parse(&sent, &PathDefaults::new(1500)).unwrap();
    let segment = Segment::parse(&sent[parsed.data]).unwrap();
    assert_eq!(segment.header.source_port, active.port());
    let report = IcmpReport {
        tuple: FourTuple::new(active, host.side.address),
        quoted: Quoted::Segment {
            seq: segment.header.seq,
        },
        error: IcmpError::PacketTooBig { mtu: 600 },
    };
    let reports = vec![report];
    let command = Command::IcmpErrors { reports };
    host.side.shard.execute(command, now).unwrap();
    assert_eq!(host.side.counter("icmp_ignored"), 1);
    every_operation(&mut host, qps);
    assert_eq!(host.side.counter("mss_changes"), 0);
}

/// Queue pairs that are destroyed in mid-transfer, each end in turn, at every number of polls.
#[test]
fn a_queue_pair_that_is_destroyed_in_mid_transfer_ends_the_other_and_leaves_no_frame() {
    for polls in 0..40 {
        for active_goes in [true, false] {
            let mut host = Host::new();
            host.listen();
            let (active, passive) = host.connect(MpaOptions::default(), MpaOptions::default());
            let stag = host.side.stag;
            for id in 0..4 {
                let work = |side: &mut Side, qp, opcode| {
                    side.post_work(qp, opcode, id, 0, (stag, 1 << 20), 1 << 20);
                };
                work(&mut host.side, active, WrOpcode::Write);
                work(&mut host.side, passive, WrOpcode::Read);
            }
            for _ in 0..polls {
                let now = host.now;
                host.side.shard.poll(now);
            }
            let (goes, stays) = match active_goes {
                true => (active, passive),
                false => (passive, active),
            };
            let remove = Command::RemoveQp { qp: goes };
            host.side.shard.execute(remove, host.now).unwrap();
            host.side.queues.remove(&goes.0);
            assert!(host.run_until(Duration::from_secs(1), |host| {
                host.side.disconnected(stays).is_some()
            }));
            assert_eq!(host.side.state(stays), QpState::Error);
            host.assert_nothing_is_left();
        }
    }
}

#[test]
fn a_client_that_goes_ends_requests_that_wait_over_the_loopback() {
    let mut host = Host::new();
    host.listen();
    let qp = host.start_connect(MpaOptions::default(), b"");
    host.run_until(Duration::from_millis(10), |host| {
        host.side.take_request().is_some()
    });
    let unlisten = Command::Unlisten { listener: LISTENER };
    host.side.shard.execute(unlisten, host.now).unwrap();
    let goes = Command::RemoveClient { client: CLIENT };
    host.side.shard.execute(goes, host.now).unwrap();
    assert!(host.run_until(Duration::from_secs(1), |host| {
        host.side.state(qp) == QpState::Error
    }));
    host.assert_nothing_is_left();
}

/// The first bytes of a frame with this segment's headers and nothing behind.
pub(super) fn from_the_link(
    source: SocketAddr,
    destination: SocketAddr,
    header: &TcpHeader,
) -> Vec<u8> {
    let path = Path {
        src_mac: [2, 0, 0, 0, 0, 9],
        dst_mac: [2, 0, 0, 0, 0, 1],
        ..Path::loopback(1500)
    };
    let tuple = FourTuple::new(source, destination);
    let header = &TcpHeader {
        source_port: source.port(),
        destination_port: destination.port(),
        ..*header
    };
    let mut frame = vec![0; 128];
    let ecn = Ecn::NotEct;
    let payload = Payload::default();
    let len = rnic_net::write_segment(&path, &tuple, ecn, header, payload, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

/// RFC 1122 section 3.2.1.3: such an address appears on no link.
#[test]
fn what_comes_from_a_link_is_never_from_this_host() {
    let mut host = Host::beside_a_link();
    host.listen();
    let (active, passive) = host.connect(MpaOptions::default(), MpaOptions::default());
    let own = host.side.address;
    let connected = SocketAddr::new(own.ip(), host.next_port);
    let header = |flags| TcpHeader {
        flags,
        ..TcpHeader::default()
    };
    let stranger = |port| SocketAddr::new(own.ip(), port);
    let frames = [
        from_the_link("127.0.0.1:9".parse().unwrap(), own, &header(Flags::SYN)),
        from_the_link(own, "127.0.0.1:7174".parse().unwrap(), &header(Flags::SYN)),
        from_the_link(stranger(9), own, &header(Flags::SYN)),
        // To either end of a connection of the loopback.
        from_the_link(connected, own, &header(Flags::RST)),
        from_the_link(own, connected, &header(Flags::RST)),
    ];
    for (before, frame) in frames.iter().enumerate() {
        assert!(host.side.wire.as_ref().unwrap().push(frame));
        host.settle();
        assert_eq!(host.side.counter("rx_martians"), before as u64 + 1);
    }
    assert_eq!(host.side.wire.as_ref().unwrap().waiting(), 0, "no answer");
    every_operation(&mut host, (active, passive));
    let link = host.side.wire.as_ref().unwrap();
    assert_eq!(link.waiting(), 0, "nothing of it goes over the link");
}

/// Two flows that always have more to send: in each poll both get on, whichever began first.
#[test]
fn a_loopback_flow_and_one_over_a_link_keep_each_other_from_nothing() {
    for loopback_first in [true, false] {
        let mut world = World::new(1, Impairment::NONE);
        let (over_link, _) = world.connect();
        let far = world.b.stag;
        let mut host = Host {
            now: world.now,
            next_port: 50_000,
            from: None,
            side: world.a,
        };
        host.side.mtu = 1500;
        host.listen();
        let (active, _) = host.connect(MpaOptions::default(), MpaOptions::default());
        let own = host.side.stag;
        let mut flows = [(active, own), (over_link, far)];
        if !loopback_first {
            flows.reverse();
        }
        for (number, (qp, stag)) in flows.into_iter().enumerate() {
            for id in 0..100 {
                let id = 100 * number as u64 + id;
                let (to, len) = ((stag, 4 << 20), 1 << 20);
                host.side.post_work(qp, WrOpcode::Write, id, 0, to, len);
            }
        }
        let link = |host: &Host| host.side.wire.as_ref().unwrap().waiting();
        let before = host.side.counter("bytes_placed");
        let now = host.now;
        host.side.shard.poll(now);
        assert!(link(&host) > 0, "the link waits for the loopback");
        host.side.shard.poll(now);
        let placed = host.side.counter("bytes_placed") - before;
        assert!(placed > 0, "the loopback waits for the link");
        assert!(placed < 4 << 20, "a poll is bounded: {placed} bytes");
    }
}

#[test]
fn allow_lists_of_peers_are_not_for_programs_of_the_host_itself() {
    let mut host = Host::beside_a_link();
    host.side
        .peers
        .add(ListOwner::Interface, AllowList::new(Vec::new()).unwrap());
    host.listen();
    host.connect(MpaOptions::default(), MpaOptions::default());
    assert_eq!(host.side.counter("peers_refused_interface"), 0);
}
