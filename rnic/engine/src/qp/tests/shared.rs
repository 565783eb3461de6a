//! Receives that queue pairs of one protection domain share (the S-RQ of the RDMA verbs).

use rnic_ipc::ring::SrqMemory;
use rnic_proto::ddp::DdpError;

use super::*;
use crate::conn::PLACED_AT_ONCE;

const SRQ: SrqId = SrqId(4);
const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const SHARED_DEPTH: u32 = 16;

/// Two peers, each with a queue pair of its own on one end whose receives are shared.
struct Shared {
    peers: [End; 2],
    /// Its queue pair is the active one; the other's is `aside`.
    end: End,
    aside: Qp,
    turn: usize,
    queue: WorkQueueProducer,
    memory: Arc<SharedMemory>,
}

impl Shared {
    fn new() -> Self {
        let mut end = End::new();
        let slots = QpMemory::slots(SHARED_DEPTH, MAX_SGE).unwrap();
        let memory = Arc::new(SharedMemory::private(SrqMemory::size(slots).unwrap()).unwrap());
        let ring = SrqMemory::create_in(memory.clone(), slots, MAX_SGE).unwrap();
        let queue = SrqMemory::attach(memory.clone(), slots, MAX_SGE).unwrap();
        assert!(end.srqs.add(ClientId(1), SRQ, MAX_SGE as usize, ring));
        let attributes = QpAttributes {
            srq: Some(SRQ),
            ..attributes(true)
        };
        // The second queue pair's own queues are posted to by nobody.
        let second = End::with(attributes.clone(), CQ_DEPTH);
        let mut aside = second.qp;
        aside.id.num = QpNum(8);
        end.qp.share_receives(SRQ, MAX_SGE as usize);
        aside.share_receives(SRQ, MAX_SGE as usize);
        let mut peers = [End::new(), End::new()];
        for peer in &mut peers {
            open(peer, &mut end, &negotiated(None));
            std::mem::swap(&mut end.qp, &mut aside);
        }
        Self {
            peers,
            end,
            aside,
            turn: 0,
            queue,
            memory,
        }
    }

    fn post(&mut self, wr_id: u64, sges: &[Sge]) {
        let request = request(WrOpcode::Recv, wr_id, sges);
        self.queue.push(&request).unwrap();
    }

    /// Has the queue pair of this peer on the end.
    fn turn_of(&mut self, peer: usize) {
        if self.turn != peer {
            std::mem::swap(&mut self.end.qp, &mut self.aside);
            self.turn = peer;
        }
    }

    /// One FPDU of this peer's.
    fn step(&mut self, peer: usize) {
        self.turn_of(peer);
        let fpdu = self.peers[peer].produce(MULPDU).expect("something to send");
        self.end.receive(&fpdu);
    }

    /// Everything between this peer and the end.
    fn pump(&mut self, peer: usize) {
        self.turn_of(peer);
        pump(&mut self.peers[peer], &mut self.end);
    }

    /// Who took which receive, in the order of completion.
    fn taken(&mut self) -> Vec<(u32, u64, WcStatus)> {
        let found = self.end.recvs();
        let status = |raw: &Completion| WcStatus::from_u8(raw.status).unwrap();
        found
            .iter()
            .map(|raw| (raw.qp, raw.wr_id, status(raw)))
            .collect()
    }
}

const OK: WcStatus = WcStatus::Success;
const FLUSHED: WcStatus = WcStatus::WorkRequestFlushed;

#[test]
fn each_send_takes_the_oldest_receive_whichever_queue_pair_it_comes_to() {
    let mut shared = Shared::new();
    for wr_id in 0..4 {
        shared.post(wr_id, &[sge(SINK + wr_id * 8, 8)]);
    }
    for (peer, bytes) in [(0, b"aaaaaaaa"), (1, b"bbbbbbbb")] {
        shared.peers[peer].fill(SOURCE, bytes);
        for wr_id in 0..2 {
            shared.peers[peer].post_send(&send(wr_id, &[sge(SOURCE, 8)]));
        }
    }
    for peer in [0, 1, 1, 0] {
        shared.step(peer);
    }
    let expected = [(7, 0, OK), (8, 1, OK), (8, 2, OK), (7, 3, OK)];
    assert_eq!(shared.taken(), expected);
    assert_eq!(
        shared.end.read(SINK, 32),
        b"aaaaaaaabbbbbbbbbbbbbbbbaaaaaaaa"
    );
}

#[test]
fn a_send_that_finds_no_receive_ends_its_own_stream_and_no_other() {
    let mut shared = Shared::new();
    shared.post(1, &[sge(SINK, 8)]);
    shared.peers[0].post_send(&send(1, &[sge(SOURCE, 8)]));
    shared.step(0);
    shared.peers[1].post_send(&send(1, &[sge(SOURCE, 8)]));
    shared.step(1);
    assert_eq!(shared.end.qp.state(), QpState::Terminate);
    let control = control(DdpError::NoBuffer);
    shared.pump(1);
    assert_eq!(
        shared.end.qp.wants_close(),
        Some(CloseKind::AfterTerminateSent { control })
    );
    shared.post(2, &[sge(SINK, 8)]);
    shared.peers[0].post_send(&send(2, &[sge(SOURCE, 8)]));
    shared.pump(0);
    assert_eq!(shared.taken(), [(7, 1, OK), (7, 2, OK)]);
}

#[test]
fn a_queue_pair_that_ends_flushes_the_receive_in_its_hand_and_leaves_the_others() {
    let mut shared = Shared::new();
    for wr_id in 0..3 {
        shared.post(wr_id, &[sge(SINK, 8000)]);
    }
    // The first peer stops in the middle of its Send, for good.
    shared.peers[0].post_send(&send(1, &[sge(SOURCE, 5000)]));
    shared.step(0);
    shared.peers[1].post_send(&send(1, &[sge(SOURCE, 5000)]));
    shared.pump(1);
    assert_eq!(shared.taken(), [(8, 1, OK)]);
    shared.turn_of(0);
    let ended = DisconnectReason::TimedOut;
    shared
        .end
        .with_ctx(|qp, ctx| qp.connection_ended(ctx, ended));
    assert_eq!(shared.taken(), [(7, 0, FLUSHED)]);
    // Not even a doorbell to it takes more.
    shared.end.doorbell();
    assert_eq!(shared.taken(), []);
    shared.peers[1].post_send(&send(2, &[sge(SOURCE, 8)]));
    shared.pump(1);
    assert_eq!(shared.taken(), [(8, 2, OK)]);
}

#[test]
fn the_limit_is_told_whoever_takes_the_receive() {
    let mut shared = Shared::new();
    for wr_id in 0..3 {
        shared.post(wr_id, &[sge(SINK, 8), sge(SINK + 8, 8), sge(SINK + 16, 8)]);
    }
    assert!(shared.end.srqs.arm(SRQ, 2));
    for (peer, told) in [(0, None), (1, Some((ClientId(1), SRQ))), (0, None)] {
        shared.peers[peer].post_send(&send(1, &[]));
        shared.step(peer);
        assert_eq!(shared.end.srqs.poll_limit(), told);
    }
}

#[test]
fn a_receive_that_cannot_be_ends_the_queue_pair_that_took_it() {
    let hostile = [
        request(WrOpcode::Recv, 1, &vec![sge(SINK, 8); MAX_SGE as usize + 1]),
        request(WrOpcode::Send, 1, &[sge(SINK, 8)]),
    ];
    for receive in hostile {
        let mut shared = Shared::new();
        shared.queue.push(&receive).unwrap();
        shared.post(2, &[sge(SINK, 8)]);
        for peer in 0..2 {
            shared.peers[peer].post_send(&send(1, &[sge(SOURCE, 8)]));
            shared.step(peer);
        }
        let expected = [(7, 1, WcStatus::LocalQpOperation), (8, 2, OK)];
        assert_eq!(shared.taken(), expected, "{receive:?}");
    }
}

#[test]
fn a_receive_into_another_domains_memory_is_a_protection_error() {
    let mut shared = Shared::new();
    let foreign = Sge {
        lkey: OTHER_STAG.0,
        ..sge(BASE, 8)
    };
    shared.post(1, &[foreign]);
    shared.peers[0].post_send(&send(1, &[sge(SOURCE, 8)]));
    shared.step(0);
    assert_eq!(shared.taken(), [(7, 1, WcStatus::LocalProtection)]);
    shared.end.assert_guarded_untouched();
}

#[test]
fn a_broken_shared_ring_is_told_by_whoever_finds_it() {
    let mut shared = Shared::new();
    // The producer index is the first word of the ring's second line.
    let producer = shared.memory.atomic_u32(64).unwrap();
    producer.store(0x8000_0000, std::sync::atomic::Ordering::Release);
    for peer in 0..2 {
        shared.peers[peer].post_send(&send(1, &[]));
        shared.step(peer);
        assert!(shared.end.qp.take_fault().is_some());
        assert_eq!(shared.end.qp.state(), QpState::Error);
    }
}

/// Its own receive queue still lies in the shared memory, and a client may write there.
#[test]
fn what_is_posted_to_the_receive_queue_that_is_not_its_own_is_never_looked_at() {
    let mut shared = Shared::new();
    shared.end.post_recv(9, &[sge(SINK, 8)]);
    shared.peers[0].post_send(&send(1, &[sge(SOURCE, 8)]));
    shared.step(0);
    assert_eq!(shared.end.counters.refused_no_receive, 1);
    let ended = DisconnectReason::LocalError;
    shared
        .end
        .with_ctx(|qp, ctx| qp.connection_ended(ctx, ended));
    assert_eq!(shared.taken(), []);
}

/// Others take from the queue too: which receive a Send behind the next will get is known only when
/// those before it have theirs.
#[test]
fn of_sends_before_their_turn_only_the_next_takes_a_shared_receive() {
    let mut shared = Shared::new();
    for wr_id in 0..3 {
        shared.post(wr_id, &[sge(SINK + wr_id * 8, 8)]);
    }
    let peer = &mut shared.peers[0];
    peer.fill(SOURCE, b"first...second..");
    peer.post_send(&send(1, &[sge(SOURCE, 8)]));
    peer.post_send(&send(2, &[sge(SOURCE + 8, 8)]));
    let fpdus: Vec<_> = std::iter::from_fn(|| peer.produce(MULPDU)).collect();
    let mut placed = [PlacedFpdu::default(); PLACED_AT_ONCE];
    let mut early = |end: &mut End, fpdu: &[u8]| {
        end.with_ctx(|qp, ctx| qp.place_early(ctx, &[fpdu], 5000, true, &mut placed))
    };
    assert_eq!(early(&mut shared.end, &fpdus[1]), 0);
    assert_eq!(early(&mut shared.end, &fpdus[0]), 1);
    assert_eq!(early(&mut shared.end, &fpdus[1]), 0);
    assert_eq!(shared.end.read(SINK, 16), *b"first...\0\0\0\0\0\0\0\0");
    // The other queue pair takes the second, and a connection that ends leaves the third.
    shared.peers[1].post_send(&send(1, &[sge(SOURCE, 8)]));
    shared.pump(1);
    shared.turn_of(0);
    let ended = DisconnectReason::TimedOut;
    shared
        .end
        .with_ctx(|qp, ctx| qp.connection_ended(ctx, ended));
    assert_eq!(shared.taken(), [(8, 1, OK), (7, 0, FLUSHED)]);
}
