//! Memory windows between two RNICs: bound for one peer of several in a protection domain.

use rnic::{
    Access, CompletionQueue, ConnectOptions, DisconnectReason, Listener, MemoryWindow, QpConfig,
    QueuePair, WcStatus, WorkRequest,
};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, LIMIT};

const PORT: u16 = 18515;
const LEN: usize = 8192;
const TO_READ: Access = Access {
    local_write: false,
    remote_read: true,
    remote_write: false,
    remote_atomic: false,
};

/// Two peers of queue pairs of one domain: a window bound for the first is nobody else's, and the
/// first may invalidate it though the domain has two streams (RFC 5040 section 8.1.1, 7).
#[test]
fn a_window_is_for_the_peer_that_it_was_bound_for() {
    let pair = Pair::new("windows");
    let peers = [(); 2].map(|()| Endpoint::new(&pair.daemon_a, LEN));
    let owner = Endpoint::new(&pair.daemon_b, LEN);
    owner.fill(7);
    let at = pair.b.address(Family::V4, PORT);
    let listener = Listener::bind(&owner.context, at, 4).expect("a free address");
    let streams = peers.each_ref().map(|peer| {
        let cq = CompletionQueue::create(&owner.context, 16).expect("a completion queue");
        let qp = QueuePair::create(&owner.pd, &cq, &cq, QpConfig::default());
        let qp = qp.expect("a queue pair");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.accept_request(LIMIT).expect("a request");
                request.accept(&qp, &[], LIMIT).expect("RDMA mode");
            });
            peer.qp
                .connect(at, ConnectOptions::default())
                .expect("RDMA mode");
        });
        (qp, cq)
    });
    let [(first, first_cq), _second] = &streams;
    let window = MemoryWindow::alloc(&owner.pd).expect("a window");
    let next = |peer: &Endpoint| peer.completion().status;
    // A peer opens the conversation: an RNIC that was connected to sends, and works, after it.
    for peer in &peers {
        let place = [peer.element(0..8)];
        let remote = owner.region.remote(0..8).expect("in the region");
        peer.post(WorkRequest::read(0, &place, remote));
        assert_eq!(next(peer), WcStatus::Success);
    }
    let bound = window.bind(1, &owner.region, 1000..1100, TO_READ);
    let (work, remote) = bound.expect("in the region");
    first.post_send(work).expect("room");
    first_cq.wait(LIMIT).expect("the window is bound");
    let [peer, other] = &peers;
    let place = [peer.element(0..100)];
    peer.post(WorkRequest::read(1, &place, remote));
    assert_eq!(next(peer), WcStatus::Success);
    assert_eq!(peer.content()[..100], owner.content()[1000..1100]);
    let place = [other.element(0..100)];
    other.post(WorkRequest::read(1, &place, remote));
    assert_eq!(next(other), WcStatus::RemoteAccess, "the other stream");
    let ending = other.ending();
    let not_associated = DisconnectReason::TerminateReceived { control: 0x0103 };
    assert_eq!(ending, not_associated);
    first.post_recv(WorkRequest::recv(2, &[])).expect("room");
    peer.post(WorkRequest::send_with_invalidate(2, &[], remote.stag));
    assert_eq!(next(peer), WcStatus::Success);
    let place = [peer.element(0..100)];
    peer.post(WorkRequest::read(3, &place, remote));
    assert_eq!(next(peer), WcStatus::RemoteAccess, "it was invalidated");
    let ending = peer.ending();
    assert_eq!(
        ending,
        DisconnectReason::TerminateReceived { control: 0x0100 }
    );
}
