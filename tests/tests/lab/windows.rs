//! What gives peers rights by work of a queue pair, between two RNICs: memory windows, fast
//! registration, and memory of one stream among several of a protection domain.

use std::time::Duration;

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, DisconnectReason, ListenOptions,
    QpConfig, QueuePair, RemoteMemory, WcStatus, WindowType, WorkCompletion, WorkRequest,
};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT};

const PORT: u16 = 18515;
const LEN: usize = 8192;
const TO_READ: Access = Access::REMOTE_READ;

/// Two peers on one host, and an owner on the other with a queue pair for each, in one domain.
/// Fields are dropped in this order.
struct Triangle {
    /// The owner's queue pairs, each with its completion queue.
    streams: [(QueuePair, CompletionQueue); 2],
    peers: [Endpoint; 2],
    owner: Endpoint,
    _pair: Pair,
}

impl Triangle {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        let peers = [(); 2].map(|()| Endpoint::new(&pair.daemon_a, LEN));
        let owner = Endpoint::new(&pair.daemon_b, LEN);
        owner.fill(7);
        let at = pair.b.address(Family::V4, PORT);
        let listener = owner
            .context
            .listen(at, ListenOptions::default().backlog(4))
            .expect("a free address");
        let streams = peers.each_ref().map(|peer| {
            let cq = owner.context.create_cq(16).expect("a completion queue");
            let qp = owner.pd.create_qp(&cq, &cq, QpConfig::default());
            let qp = qp.expect("a queue pair");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let request = listener.accept().wait(LIMIT).expect("a request");
                    request
                        .accept(&qp, AcceptOptions::default())
                        .wait(LIMIT)
                        .expect("RDMA mode");
                });
                peer.qp
                    .connect(at, ConnectOptions::default())
                    .wait(Duration::from_secs(10))
                    .expect("RDMA mode");
            });
            (qp, cq)
        });
        let this = Self {
            streams,
            peers,
            owner,
            _pair: pair,
        };
        // A peer opens the conversation: an RNIC that was connected to sends, and works, after it.
        for peer in 0..2 {
            let remote = this.owner.region.remote(0..8).expect("in the region");
            assert_eq!(this.read(peer, remote, 8), WcStatus::Success);
        }
        this
    }

    /// Has a peer read to the start of its region.
    fn read(&self, peer: usize, remote: RemoteMemory, len: usize) -> WcStatus {
        let peer = &self.peers[peer];
        let place = [peer.element(0..len)];
        peer.post(WorkRequest::read(1, &place, remote));
        peer.completion().status
    }

    /// Has a peer write the start of its region, and waits until that is there; false when it was
    /// refused.
    fn write(&self, peer: usize, remote: RemoteMemory, len: usize) -> bool {
        let place = [self.peers[peer].element(0..len)];
        let work = WorkRequest::write(2, &place, remote).unsignaled();
        self.peers[peer].post(work);
        let probe = self.owner.region.remote(0..8).expect("in the region");
        let own = &self.peers[peer];
        let beside = [own.element(LEN - 8..LEN)];
        own.post(WorkRequest::read(3, &beside, probe));
        own.completion().status == WcStatus::Success
    }

    /// Has a peer send a Send with Invalidate, and gives the completion of the owner's receive, if
    /// the peer may.
    fn invalidate(&self, peer: usize, stag: u32) -> Option<WorkCompletion> {
        let (qp, cq) = &self.streams[peer];
        qp.post_recv(WorkRequest::recv(4, &[])).expect("room");
        self.peers[peer].post(WorkRequest::send_with_invalidate(4, &[], stag));
        assert_eq!(self.peers[peer].completion().status, WcStatus::Success);
        let received = completion(cq);
        (received.status == WcStatus::Success).then_some(received)
    }

    /// Has a queue pair of the owner's do local work.
    fn work(&self, stream: usize, work: WorkRequest<'_>) -> WcStatus {
        let (qp, cq) = &self.streams[stream];
        qp.post_send(work).expect("room");
        completion(cq).status
    }

    /// That the peer's stream was ended by a Terminate that says so.
    #[track_caller]
    fn ended(&self, peer: usize, control: u16) {
        let told = DisconnectReason::TerminateReceived { control };
        assert_eq!(self.peers[peer].ending(), told);
    }
}

fn completion(cq: &CompletionQueue) -> WorkCompletion {
    let mut found = [WorkCompletion::default()];
    while cq.poll(&mut found).expect("a sound completion queue") == 0 {
        cq.readable().wait(LIMIT).expect("a completion");
    }
    found[0]
}

/// Two peers of queue pairs of one domain: a window bound for the first is nobody else's, and the
/// first may invalidate it though the domain has two streams (RFC 5040 section 8.1.1, 7).
#[test]
fn a_window_is_for_the_peer_that_it_was_bound_for() {
    let world = Triangle::new("windows");
    let window = world
        .owner
        .pd
        .alloc_window(WindowType::Type2B)
        .expect("a window");
    let bound = window.bind(1, &world.owner.region, 1000..1100, TO_READ);
    let (work, remote) = bound.expect("in the region");
    assert_eq!(world.work(0, work), WcStatus::Success);
    assert_eq!(world.read(0, remote, 100), WcStatus::Success);
    let found = world.owner.content();
    assert_eq!(world.peers[0].content()[..100], found[1000..1100]);
    let other = world.read(1, remote, 100);
    assert_eq!(other, WcStatus::RemoteAccess, "the other stream");
    world.ended(1, 0x0103);
    let received = world.invalidate(0, remote.stag).expect("it may");
    assert_eq!(received.invalidated, Some(remote.stag));
    let gone = world.read(0, remote, 100);
    assert_eq!(gone, WcStatus::RemoteAccess, "it was invalidated");
    world.ended(0, 0x0100);
}

/// A window of type 1 is for all peers of the domain, whoever bound it; bound again, its old STag is
/// worth nothing; and no peer may invalidate it.
#[test]
fn a_window_of_type_1_is_for_all_peers_of_its_domain() {
    let world = Triangle::new("windows1");
    let window = world
        .owner
        .pd
        .alloc_window(WindowType::Type1)
        .expect("a window");
    let bind = |wr_id, range| {
        let bound = window.bind(wr_id, &world.owner.region, range, TO_READ);
        bound.expect("in the region")
    };
    let (work, old) = bind(1, 1000..1100);
    assert_eq!(world.work(0, work), WcStatus::Success);
    let (work, remote) = bind(2, 2000..2100);
    assert_eq!(world.work(1, work), WcStatus::Success);
    for peer in 0..2 {
        assert_eq!(world.read(peer, remote, 100), WcStatus::Success);
        let found = world.peers[peer].content();
        assert_eq!(found[..100], world.owner.content()[2000..2100]);
    }
    assert!(world.invalidate(0, remote.stag).is_none());
    world.ended(0, 0x0109);
    assert_eq!(world.read(1, remote, 100), WcStatus::Success);
    assert_eq!(world.work(1, window.unbind(3)), WcStatus::Success);
    assert_eq!(world.read(1, old, 100), WcStatus::RemoteAccess);
    world.ended(1, 0x0100);
}

/// A region that work registers for one stream, which its peer invalidates, and which is registered
/// again with other bytes; then the same with a region's own memory.
#[test]
fn what_a_peer_invalidated_is_registered_again_by_work() {
    let world = Triangle::new("fastreg");
    let fast = world.owner.pd.alloc_fast_region().expect("an STag");
    let peer = &world.peers[0];
    let mut last = fast.stag();
    for (turn, start) in [1000, 3000].into_iter().enumerate() {
        let range = start..start + 100;
        let registered = fast.register(1, &world.owner.region, range.clone(), FULL_ACCESS);
        let (work, remote) = registered.expect("in the region");
        assert_ne!(remote.stag, last);
        assert_eq!(world.work(0, work.of_one_stream()), WcStatus::Success);
        peer.fill(turn as u64);
        assert!(world.write(0, remote, 100));
        assert_eq!(world.owner.content()[range], peer.content()[..100]);
        let received = world.invalidate(0, remote.stag).expect("it may");
        assert_eq!(received.invalidated, Some(remote.stag));
        last = remote.stag;
    }
    let own = world.streams[0].0.register(4096, FULL_ACCESS);
    let own = own.expect("memory of one stream");
    let first = own.remote(0..4096).expect("all of it");
    assert!(world.write(0, first, 100));
    assert_eq!(own.to_vec(0..100).unwrap(), peer.content()[..100]);
    assert!(world.invalidate(0, first.stag).is_some());
    let again = own.reregister(2, 64..128, FULL_ACCESS);
    let (work, remote) = again.expect("in the region");
    assert_eq!(world.work(0, work), WcStatus::Success);
    peer.fill(99);
    assert!(world.write(0, remote, 64));
    assert_eq!(own.to_vec(64..128).unwrap(), peer.content()[..64]);
    assert_eq!(
        world.read(1, remote, 64),
        WcStatus::Success,
        "of the domain"
    );
    assert_eq!(world.read(0, first, 8), WcStatus::RemoteAccess);
    world.ended(0, 0x0100);
    let beyond = RemoteMemory { len: 65, ..remote };
    assert_eq!(world.read(1, beyond, 65), WcStatus::RemoteAccess);
    world.ended(1, 0x0101);
}

/// RFC 5040 section 8.1.1, 2 and 7; RFC 5041 section 8.2.
#[test]
fn memory_of_one_stream_is_for_its_peer_alone() {
    let world = Triangle::new("onestream");
    let own = world.streams[0].0.register(4096, FULL_ACCESS);
    let own = own.expect("memory of one stream");
    let remote = own.remote(0..4096).expect("all of it");
    world.peers[0].fill(5);
    assert!(world.write(0, remote, 100));
    let written = own.to_vec(0..100).unwrap();
    assert_eq!(written, world.peers[0].content()[..100]);
    world.peers[1].fill(6);
    assert!(!world.write(1, remote, 100));
    world.ended(1, 0x1102);
    assert_eq!(own.to_vec(0..100).unwrap(), written, "nothing was placed");
    let received = world.invalidate(0, remote.stag).expect("it may");
    assert_eq!(received.invalidated, Some(remote.stag));
    assert!(!world.write(0, remote, 100));
    world.ended(0, 0x1100);
}
