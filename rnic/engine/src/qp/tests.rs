//! Two queue pairs joined by memory: what one produces the other receives, cut anywhere.

mod atomics;
mod early;
mod elements;
mod endings;
mod fences;
mod hostile;
mod immediate;
mod inline;
mod join;
mod local_errors;
mod markers;
mod programs;
mod registration;
mod remote_errors;
mod segments;
mod shared;
mod states;
mod transfers;
mod windows;
mod writes;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::ring::{CqConsumer, CqMemory, QpMemory, WorkQueueProducer, WorkRequest};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::{Completion, Sge, WR_SIGNALED, WcStatus, WrOpcode};
use rnic_proto::enhanced::Rtr;
use rnic_proto::mpa::fpdu::Written;
use rnic_proto::mpa::startup::Revision;
use rnic_proto::rdmap::{AtomicOperation, TerminateError};
use rnic_proto::{Stag, TaggedOffset};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use userspace_net::checksum;

use super::*;
use crate::random::{Random, seeds};
use crate::region::RegionMemory;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
/// Another stream of the same protection domain.
const NEIGHBOUR: User = User {
    pd: PD,
    qp: QpNum(8),
};
const SEND_CQ: CqId = CqId(1);
const RECV_CQ: CqId = CqId(2);
const CQ_DEPTH: u32 = 256;
const DEPTH: u32 = 16;
const MAX_SGE: u32 = 8;

/// The region that everything may be done to.
const STAG: Stag = Stag(0x0000_0a01);
const BASE: u64 = 0x10_0000;
const LEN: usize = 256 * 1024;
/// A region that only local work may write.
const LOCAL_STAG: Stag = Stag(0x0000_0b02);
/// A region without any right.
const BARE_STAG: Stag = Stag(0x0000_0c03);
/// A region of another protection domain, with all rights.
const OTHER_STAG: Stag = Stag(0x0000_0d04);
const SMALL_LEN: usize = 4096;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
const LOCAL: Access = Access::LOCAL_WRITE;
const BARE: Access = Access::NONE;

const MULPDU: usize = 1442;

/// Any bytes.
fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8).collect()
}

/// A shard's tables with one queue pair, and its client.
struct End {
    stags: StagTable,
    cqs: CqTable,
    srqs: SrqTable,
    counters: QpCounters,
    times: WorkTimes,
    now: Instant,
    queue_pool: QueuePool,
    qp: Qp,
    sq: WorkQueueProducer,
    rq: WorkQueueProducer,
    send_cq: CqConsumer,
    recv_cq: CqConsumer,
    /// Gets a byte when the armed send CQ has something.
    woken: OwnedFd,
    /// Likewise of the receives' CQ.
    recv_woken: OwnedFd,
    memory: Arc<SharedMemory>,
    small: [Arc<SharedMemory>; 3],
    /// The memory of both work queues.
    queues: Arc<SharedMemory>,
    /// Bytes that came and were not used yet.
    stream: Vec<u8>,
}

/// FPDUs, each by itself.
struct Fpdus {
    mulpdu: usize,
    place: usize,
    most: usize,
    written: Vec<Vec<u8>>,
    next: Vec<u8>,
}

impl TxSegments for Fpdus {
    fn has_room(&mut self) -> bool {
        self.written.len() < self.most
    }

    fn mulpdu(&self) -> usize {
        self.mulpdu.max(fpdu::MULPDU_MIN)
    }

    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.place || !self.has_room() {
            self.most = 0;
            return None;
        }
        self.next = vec![0xee; len];
        Some(&mut self.next)
    }

    fn add(&mut self, fpdu: &Written) {
        let bytes = std::mem::take(&mut self.next);
        assert_eq!(fpdu.len, bytes.len());
        assert_eq!(fpdu.sum, checksum::sum(&bytes).folded(), "{bytes:x?}");
        self.written.push(bytes);
    }
}

fn attributes(signal_all: bool) -> QpAttributes {
    QpAttributes {
        pd: PD,
        send_cq: SEND_CQ,
        recv_cq: RECV_CQ,
        sq_depth: DEPTH,
        rq_depth: DEPTH,
        srq: None,
        max_sge: MAX_SGE,
        max_inline: 0,
        signal_all,
        receive_wait: None,
    }
}

fn cq(table: &mut CqTable, cq: CqId, depth: u32) -> (CqConsumer, OwnedFd) {
    let size = CqMemory::size(depth, 1).unwrap();
    let memory = Arc::new(SharedMemory::private(size).unwrap());
    let producer = CqMemory::create_in(&memory, depth, 1).unwrap().remove(0);
    let (notify, woken) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    assert!(table.add(ClientId(1), cq, producer, notify.into()));
    (
        CqMemory::attach(&memory, depth, 1).unwrap().remove(0),
        woken,
    )
}

impl End {
    fn new() -> Self {
        Self::with(attributes(true), CQ_DEPTH)
    }

    fn with(attributes: QpAttributes, cq_depth: u32) -> Self {
        let mut stags = StagTable::new(16);
        stags.stream_added(User {
            pd: PD,
            qp: QpNum(7),
        });
        let mut add = |stag, pd, access, len| {
            let memory = Arc::new(SharedMemory::private(len).unwrap());
            let region = RegionMemory::Shared {
                memory: memory.clone(),
                offset: 0,
                len,
            };
            stags
                .add(stag, pd, access, TaggedOffset(BASE), region)
                .unwrap();
            memory
        };
        let memory = add(STAG, PD, ALL, LEN);
        let small = [
            add(LOCAL_STAG, PD, LOCAL, SMALL_LEN),
            add(BARE_STAG, PD, BARE, SMALL_LEN),
            add(OTHER_STAG, OTHER_PD, ALL, SMALL_LEN),
        ];
        let mut cqs = CqTable::new(4);
        let (send_cq, woken) = cq(&mut cqs, SEND_CQ, cq_depth);
        let (recv_cq, recv_woken) = cq(&mut cqs, RECV_CQ, cq_depth);
        let places = attributes.send_places().max(MAX_SGE);
        let slots = QpMemory::slots(DEPTH * 2, places).unwrap();
        let layout = QpMemory::layout(slots, slots).unwrap();
        let queues = Arc::new(SharedMemory::private(layout.size).unwrap());
        let (sq, rq) = QpMemory::create_in(queues.clone(), &layout).unwrap();
        let qp = Qp::new(ClientId(1), QpNum(7), attributes, sq, rq);
        let (sq, rq) = QpMemory::attach(queues.clone(), &layout).unwrap();
        Self {
            stags,
            cqs,
            srqs: SrqTable::default(),
            counters: QpCounters::default(),
            times: WorkTimes::default(),
            now: Instant::ZERO,
            queue_pool: QueuePool::default(),
            qp,
            sq,
            rq,
            send_cq,
            recv_cq,
            woken,
            recv_woken,
            memory,
            small,
            queues,
            stream: Vec::new(),
        }
    }

    fn with_ctx<R>(&mut self, act: impl FnOnce(&mut Qp, &mut QpContext<'_>) -> R) -> R {
        let ctx = &mut QpContext {
            stags: &mut self.stags,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            counters: &mut self.counters,
            times: &mut self.times,
            now: self.now,
            queue_pool: &mut self.queue_pool,
        };
        act(&mut self.qp, ctx)
    }

    fn post_send(&mut self, request: &WorkRequest) {
        self.sq.push(request).unwrap();
        self.doorbell();
    }

    fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.rq.push(&request(WrOpcode::Recv, wr_id, sges)).unwrap();
        self.doorbell();
    }

    fn doorbell(&mut self) {
        self.with_ctx(|qp, ctx| qp.doorbell(ctx));
    }

    /// The next FPDU, if there is one.
    fn produce(&mut self, mulpdu: usize) -> Option<Vec<u8>> {
        self.transmit(mulpdu, usize::MAX, 1).pop()
    }

    /// So many FPDUs at most, each of which has a place of so many bytes at most.
    fn transmit(&mut self, mulpdu: usize, place: usize, most: usize) -> Vec<Vec<u8>> {
        let mut out = Fpdus {
            mulpdu,
            place,
            most,
            written: Vec::new(),
            next: Vec::new(),
        };
        self.with_ctx(|qp, ctx| {
            qp.transmit(ctx, &mut out);
            qp.complete_all_ended(ctx);
        });
        out.written
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        let stream = std::mem::take(&mut self.stream);
        let used = self.with_ctx(|qp, ctx| qp.receive(ctx, &[&stream]));
        self.stream = stream[used..].to_vec();
    }

    /// Takes in what is there, as pieces cut anywhere.
    fn receive_cut(&mut self, random: &mut Random) {
        let stream = std::mem::take(&mut self.stream);
        let there = match random.below(2) {
            0 => stream.len(),
            _ => random.below(stream.len() as u64) as usize,
        };
        let mut pieces = Vec::new();
        let mut rest = &stream[..there];
        while !rest.is_empty() {
            let at = 1 + random.below(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at(at);
            pieces.push(piece);
            rest = later;
        }
        let used = self.with_ctx(|qp, ctx| qp.receive(ctx, &pieces));
        self.stream = stream[used..].to_vec();
    }

    fn sends(&mut self) -> Vec<Completion> {
        poll(&mut self.send_cq)
    }

    fn recvs(&mut self) -> Vec<Completion> {
        poll(&mut self.recv_cq)
    }

    fn fill(&self, at: u64, bytes: &[u8]) {
        self.memory.write((at - BASE) as usize, bytes).unwrap();
    }

    fn set_word(&self, at: u64, value: u64) {
        self.fill(at, &value.to_ne_bytes());
    }

    fn word(&self, at: u64) -> u64 {
        let bytes = self.read(at, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read((at - BASE) as usize, &mut out).unwrap();
        out
    }

    /// The regions that nobody may write remotely are as they were.
    fn assert_guarded_untouched(&self) {
        for memory in &self.small {
            let mut out = vec![0; SMALL_LEN];
            memory.read(0, &mut out).unwrap();
            assert!(out.iter().all(|byte| *byte == 0));
        }
    }
}

fn poll(cq: &mut CqConsumer) -> Vec<Completion> {
    let mut out = vec![Completion::default(); CQ_DEPTH as usize];
    let count = cq.poll(&mut out).unwrap();
    out.truncate(count);
    out
}

fn negotiated(rtr: Option<Rtr>) -> Negotiated {
    Negotiated {
        revision: Revision::Two,
        crc: true,
        markers_in: Markers::Off,
        markers_out: Markers::Off,
        aligned: false,
        ird: 4,
        ord: 4,
        rtr,
        peer: None,
    }
}

/// Two ends in RDMA mode; the first is the initiator.
fn joined_with(negotiated: &Negotiated) -> (End, End) {
    let (mut a, mut b) = (End::new(), End::new());
    open(&mut a, &mut b, negotiated);
    (a, b)
}

fn open(a: &mut End, b: &mut End, negotiated: &Negotiated) {
    for (end, initiator) in [(a, true), (b, false)] {
        end.qp.begin_connecting().unwrap();
        end.qp.enter_rdma_mode(negotiated, initiator);
    }
}

/// As above, with the initiator's Ready-to-Receive indication already there.
fn joined() -> (End, End) {
    let (mut a, mut b) = joined_with(&negotiated(Some(Rtr::Write)));
    pump(&mut a, &mut b);
    a.counters = QpCounters::default();
    b.counters = QpCounters::default();
    (a, b)
}

/// Moves everything both ways until nothing moves.
fn pump(a: &mut End, b: &mut End) {
    loop {
        let mut moved = false;
        while let Some(fpdu) = a.produce(MULPDU) {
            b.receive(&fpdu);
            moved = true;
        }
        while let Some(fpdu) = b.produce(MULPDU) {
            a.receive(&fpdu);
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

fn sge(at: u64, length: u32) -> Sge {
    Sge {
        addr: at,
        length,
        lkey: STAG.0,
    }
}

fn request(opcode: WrOpcode, wr_id: u64, sges: &[Sge]) -> WorkRequest {
    let mut request = WorkRequest::new(opcode, wr_id);
    request.slot.flags = WR_SIGNALED;
    assert!(request.set_sges(sges));
    request
}

fn send(wr_id: u64, sges: &[Sge]) -> WorkRequest {
    request(WrOpcode::Send, wr_id, sges)
}

fn write(wr_id: u64, sges: &[Sge], to: u64) -> WorkRequest {
    remote(WrOpcode::Write, wr_id, sges, STAG, to)
}

fn read(wr_id: u64, sink: Sge, from: u64) -> WorkRequest {
    remote(WrOpcode::Read, wr_id, &[sink], STAG, from)
}

fn remote(opcode: WrOpcode, wr_id: u64, sges: &[Sge], stag: Stag, to: u64) -> WorkRequest {
    let mut request = request(opcode, wr_id, sges);
    request.slot.remote_addr = to;
    request.slot.rkey = stag.0;
    request
}

/// An Atomic Operation on the remote word at `to`; the original value goes to `sink`.
fn atomic(wr_id: u64, sink: u64, stag: Stag, to: u64, operation: AtomicOperation) -> WorkRequest {
    let (opcode, operands) = match operation {
        AtomicOperation::FetchAdd { add, mask } => (WrOpcode::AtomicFetchAdd, [add, mask, 0, 0]),
        AtomicOperation::CompareSwap {
            swap,
            swap_mask,
            compare,
            compare_mask,
        } => (
            WrOpcode::AtomicCompareSwap,
            [swap, swap_mask, compare, compare_mask],
        ),
    };
    let mut request = remote(opcode, wr_id, &[sge(sink, 8)], stag, to);
    assert!(request.set_operands(&operands));
    request
}

fn fetch_add(wr_id: u64, sink: u64, to: u64, add: u64) -> WorkRequest {
    let operation = AtomicOperation::FetchAdd { add, mask: 0 };
    atomic(wr_id, sink, STAG, to, operation)
}

fn immediate(opcode: WrOpcode, wr_id: u64, sges: &[Sge], to: u64, data: u64) -> WorkRequest {
    let mut request = remote(opcode, wr_id, sges, STAG, to);
    assert!(request.set_operands(&[data, 0, 0, 0]));
    request
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions
        .iter()
        .map(|completion| {
            (
                completion.wr_id,
                WcStatus::from_u8(completion.status).unwrap(),
            )
        })
        .collect()
}

fn control(error: impl Into<TerminateError>) -> u16 {
    error.into().control()
}
