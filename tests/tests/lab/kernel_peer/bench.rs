//! An RNIC and a host with nothing but its kernel, and connections between them in either direction.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rnic::{
    AcceptOptions, ConnectOptions, ListenOptions, Listener, MarkerUse, MpaOptions, RtrModes,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions, Routers};
use rnic_tests::verbs::{Endpoint, LIMIT};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::markers::Markers;
use super::peer::{Peer, is_indication};
use super::wire::{self, CRC, ENHANCED, MARKERS, REPLY_KEY, REQUEST_KEY, StartFrame};

/// What both ends offer in these tests.
pub const OUR_IRD: u16 = 16;
pub const OUR_ORD: u16 = 16;
pub const PEER_IRD: u16 = 8;
pub const PEER_ORD: u16 = 4;

/// Flags in the words of IRD and ORD (RFC 6581 section 9): the peer-to-peer model, and its
/// Ready-to-Receive indications.
const PEER_TO_PEER: u16 = 0x8000;
const BY_SEND: u16 = 0x4000;
const BY_WRITE: u16 = 0x8000;
const BY_READ: u16 = 0x4000;
const DEPTH: u16 = 0x3fff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    Peer,
    Us,
}

/// What the initiator says first in the peer-to-peer model of revision 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    Send,
    Write,
    Read,
}

/// How a connection is to come about.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub initiator: Initiator,
    pub family: Family,
    pub revision: u8,
    /// Whether the peer, and we, ask for CRCs.
    pub crc: (bool, bool),
    /// Whether the peer, and we, ask for Markers in what we receive.
    pub markers: (bool, bool),
    /// In the peer-to-peer model. As responder the peer chooses it, and must if it is asked.
    pub indication: Option<Indication>,
    /// SO_RCVBUF of the peer as responder, from before the first SYN: its window never gets large.
    pub receive_buffer: Option<usize>,
}

impl Terms {
    pub fn new(initiator: Initiator, revision: u8) -> Self {
        let we_ask = initiator == Initiator::Us && revision == 2;
        Self {
            initiator,
            family: Family::V4,
            revision,
            crc: (true, true),
            markers: (false, false),
            indication: we_ask.then_some(Indication::Write),
            receive_buffer: None,
        }
    }

    /// All that differ in the flags of their start-up frames.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = [Initiator::Peer, Initiator::Us]
            .into_iter()
            .flat_map(|initiator| [1, 2].map(|revision| Self::new(initiator, revision)))
            .flat_map(|terms| {
                let both = [(true, true), (true, false), (false, true), (false, false)];
                let crcs = both.map(|crc| Self { crc, ..terms });
                let markers = both[..3].iter().map(|&markers| Self { markers, ..terms });
                crcs.into_iter().chain(markers.collect::<Vec<_>>())
            });
        let indications = [
            (Initiator::Peer, Indication::Send),
            (Initiator::Peer, Indication::Write),
            (Initiator::Peer, Indication::Read),
            (Initiator::Us, Indication::Read),
            (Initiator::Us, Indication::Send),
        ]
        .map(|(initiator, indication)| Self {
            indication: Some(indication),
            ..Self::new(initiator, 2)
        });
        plain.chain(indications)
    }

    /// A start-up frame of the peer's.
    fn frame(&self, private_data: &[u8]) -> StartFrame {
        let mut flags = flags(self.crc.0, self.markers.0, 1);
        let mut private_data = private_data.to_vec();
        if self.revision == 2 {
            flags |= ENHANCED;
            let (ird, ord) = match self.indication {
                None => (0, 0),
                Some(Indication::Send) => (PEER_TO_PEER | BY_SEND, 0),
                Some(Indication::Write) => (PEER_TO_PEER, BY_WRITE),
                Some(Indication::Read) => (PEER_TO_PEER, BY_READ),
            };
            private_data = wire::enhanced(ird | PEER_IRD, ord | PEER_ORD, &private_data);
        }
        StartFrame {
            flags,
            revision: self.revision,
            private_data,
        }
    }

    fn mpa(&self) -> MpaOptions {
        MpaOptions {
            revision: self.revision,
            crc: self.crc.1,
            markers: MarkerUse::of_flag(self.markers.1),
            aligned: false,
            rtr: RtrModes::ALL,
            ird: OUR_IRD,
            ord: OUR_ORD,
        }
    }
}

pub struct Bench {
    pub daemon: Daemon,
    pub rnic: Host,
    pub kernel: Host,
    /// Goes last.
    pub _lab: Lab,
}

impl Bench {
    pub fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (rnic, kernel) = lab.pair(&LinkOptions::default());
        Self::over(lab, rnic, kernel)
    }

    /// On a veth as it comes: segments and checksums are left to it. The RNIC is in this mode.
    pub fn with_offloads(name: &str, mode: &'static str) -> Self {
        let mut lab = Lab::new(name);
        let link = LinkOptions {
            offloads: true,
            ..LinkOptions::default()
        };
        let (rnic, kernel) = lab.pair(&link);
        let options = DaemonOptions {
            mode: Some(mode),
            ..DaemonOptions::default()
        };
        let daemon = Daemon::start(&lab, &rnic, &options);
        Self {
            daemon,
            rnic,
            kernel,
            _lab: lab,
        }
    }

    /// On a link of this MTU.
    pub fn of_mtu(name: &str, mtu: u32) -> Self {
        let mut lab = Lab::new(name);
        let link = LinkOptions {
            mtu,
            ..LinkOptions::default()
        };
        let (rnic, kernel) = lab.pair(&link);
        Self::over(lab, rnic, kernel)
    }

    /// With two routers between the hosts.
    pub fn routed(name: &str) -> (Self, Routers) {
        let mut lab = Lab::new(name);
        let (rnic, kernel, routers) = lab.routed(&LinkOptions::default());
        (Self::over(lab, rnic, kernel), routers)
    }

    fn over(lab: Lab, rnic: Host, kernel: Host) -> Self {
        let daemon = Daemon::start(&lab, &rnic, &DaemonOptions::default());
        Self {
            daemon,
            rnic,
            kernel,
            _lab: lab,
        }
    }

    /// A listener of ours at a free port.
    pub fn listener(&self, end: &Endpoint, family: Family) -> Listener {
        let at = self.rnic.address(family, 0);
        end.context
            .listen(at, ListenOptions::default().backlog(4))
            .expect("a free port")
    }

    /// A listener of the other host's kernel, and where.
    pub fn kernel_listener(&self, family: Family) -> (TcpListener, SocketAddr) {
        let at = self.kernel.address(family, 0);
        let bind = || TcpListener::bind(at).expect("a free port");
        let listener = self.kernel.namespace.in_thread(bind);
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    /// A kernel socket connected to one of our listeners.
    pub fn dial(&self, at: SocketAddr) -> TcpStream {
        let connect = || TcpStream::connect_timeout(&at, LIMIT).expect("the RNIC listens");
        self.kernel.namespace.in_thread(connect)
    }

    /// A connection without private data, between a new endpoint with so many bytes and a peer.
    pub fn connected(&self, terms: Terms, bytes: usize) -> (Peer, Endpoint) {
        let end = Endpoint::new(&self.daemon, bytes);
        let peer = self.start(&terms, &end, [&[], &[]]);
        (peer, end)
    }

    /// Connects on these terms with private data of initiator and responder, and checks what both
    /// ends are told.
    pub fn start(&self, terms: &Terms, end: &Endpoint, [asks, answers]: [&[u8]; 2]) -> Peer {
        let mut peer = match terms.initiator {
            Initiator::Peer => self.peer_connects(terms, end, asks, answers),
            Initiator::Us => self.we_connect(terms, end, asks, answers),
        };
        peer.crc = terms.crc.0 || terms.crc.1;
        peer.markers_in = Markers::new(terms.markers.0);
        peer.markers_out = Markers::new(terms.markers.1);
        match (terms.initiator, terms.indication) {
            (_, None) => {}
            (Initiator::Peer, Some(indication)) => indicate(&mut peer, indication),
            (Initiator::Us, Some(indication)) => indicated(&mut peer, indication),
        }
        peer
    }

    fn peer_connects(&self, terms: &Terms, end: &Endpoint, asks: &[u8], answers: &[u8]) -> Peer {
        let listener = self.listener(end, terms.family);
        thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let stream = self.dial(listener.local_addr());
                let mut peer = Peer::new(stream);
                peer.write(&terms.frame(asks).encode(REQUEST_KEY));
                let reply = peer.start_frame(REPLY_KEY);
                check_reply(terms, &reply, answers);
                peer
            });
            let request = listener.accept().wait(LIMIT).expect("a request");
            let mpa = request.mpa();
            assert_eq!(request.private_data(), asks);
            assert_eq!((mpa.revision, mpa.crc), (terms.revision, terms.crc.0));
            assert_eq!(mpa.markers, MarkerUse::of_flag(terms.markers.0));
            if terms.revision == 2 {
                assert_eq!((mpa.ird, mpa.ord), (PEER_IRD, PEER_ORD));
            }
            let options = AcceptOptions::default()
                .private_data(answers.to_vec())
                .mpa(terms.mpa());
            let established = request
                .accept(&end.qp, options)
                .wait(Duration::from_secs(10))
                .expect("RDMA mode");
            check_agreed(terms, &established.mpa);
            join(peer)
        })
    }

    fn we_connect(&self, terms: &Terms, end: &Endpoint, asks: &[u8], answers: &[u8]) -> Peer {
        let (listener, at) = self.kernel_listener(terms.family);
        if let Some(bytes) = terms.receive_buffer {
            // Accepted sockets inherit it.
            set_socket_recv_buffer_size(&listener, bytes).unwrap();
        }
        thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let (stream, _) = listener.accept().expect("the RNIC connects");
                let mut peer = Peer::new(stream);
                let request = peer.start_frame(REQUEST_KEY);
                check_request(terms, &request, asks);
                peer.write(&terms.frame(answers).encode(REPLY_KEY));
                peer
            });
            let options = ConnectOptions::default()
                .private_data(asks.to_vec())
                .mpa(terms.mpa());
            let established = end
                .qp
                .connect(at, options)
                .wait(Duration::from_secs(10))
                .expect("RDMA mode");
            assert_eq!(established.private_data, answers);
            check_agreed(terms, &established.mpa);
            join(peer)
        })
    }
}

fn flags(crc: bool, markers: bool, revision: u8) -> u8 {
    let crc = if crc { CRC } else { 0 } | if markers { MARKERS } else { 0 };
    let enhanced = if revision == 2 { ENHANCED } else { 0 };
    crc | enhanced
}

fn check_request(terms: &Terms, request: &StartFrame, private_data: &[u8]) {
    let (ird, ord, said) = request.split();
    let expected = flags(terms.crc.1, terms.markers.1, terms.revision);
    assert_eq!(request.flags, expected);
    assert_eq!((request.revision, said), (terms.revision, private_data));
    if terms.revision == 2 {
        assert_eq!((ird & DEPTH, ord & DEPTH), (OUR_IRD, OUR_ORD));
        assert_eq!(ird & !DEPTH, PEER_TO_PEER | BY_SEND);
        assert_eq!(ord & !DEPTH, BY_WRITE | BY_READ);
    }
}

fn check_reply(terms: &Terms, reply: &StartFrame, private_data: &[u8]) {
    let (ird, ord, said) = reply.split();
    // "If either side asks": the reply's C tells the outcome (RFC 5044 section 7.1.1).
    let crc = terms.crc.0 || terms.crc.1;
    let expected = flags(crc, terms.markers.1, terms.revision);
    assert_eq!(reply.flags, expected);
    assert_eq!((reply.revision, said), (terms.revision, private_data));
    if terms.revision == 2 {
        assert!(ird & DEPTH >= PEER_ORD, "IRD {}", ird & DEPTH);
        assert!(ord & DEPTH <= PEER_IRD, "ORD {}", ord & DEPTH);
        let expected = match terms.indication {
            None => (0, 0),
            Some(Indication::Send) => (PEER_TO_PEER | BY_SEND, 0),
            Some(Indication::Write) => (PEER_TO_PEER, BY_WRITE),
            Some(Indication::Read) => (PEER_TO_PEER, BY_READ),
        };
        assert_eq!((ird & !DEPTH, ord & !DEPTH), expected);
    }
}

fn check_agreed(terms: &Terms, agreed: &MpaOptions) {
    let crc = terms.crc.0 || terms.crc.1;
    assert_eq!((agreed.revision, agreed.crc), (terms.revision, crc));
    assert_eq!(agreed.markers, MarkerUse::of_flag(terms.markers.1));
    if terms.revision == 2 {
        assert!(
            agreed.ord <= PEER_IRD && agreed.ird >= PEER_ORD,
            "{agreed:?}"
        );
    }
}

/// The peer says that it is ready to receive, and nothing may come of it at our application.
fn indicate(peer: &mut Peer, indication: Indication) {
    match indication {
        Indication::Send => peer.send(&[]),
        Indication::Write => peer.rdma_write(1, 0, &[]),
        Indication::Read => {
            let request = wire::ReadRequest {
                sink_stag: 0x77,
                sink_to: 5,
                size: 0,
                source_stag: 1,
                source_to: 0,
            };
            peer.read_request(&request);
            let bytes = peer.take_tagged(wire::READ_RESPONSE, 0x77, 5);
            assert!(bytes.is_empty());
        }
    }
}

/// We say that we are ready to receive.
fn indicated(peer: &mut Peer, indication: Indication) {
    match indication {
        Indication::Send => assert_eq!(peer.take_send(wire::SEND), (Vec::new(), 0)),
        Indication::Write => {
            let message = peer.any_message().expect("an indication");
            assert!(is_indication(&message), "{message:?}");
        }
        Indication::Read => {
            let request = peer.take_read_request();
            assert_eq!(request.size, 0);
            peer.read_response(&request, &[]);
        }
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
