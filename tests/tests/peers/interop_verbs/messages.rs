//! Every message that both have, from each side: bytes arrive as they were sent, and no others
//! change. Sizes are those at which something changes: none, the pad, one FPDU or two.

use rnic::{DisconnectReason, MpaOptions, WorkRequest, WrOpcode};
use rnic_tests::cases::Cases;
use rnic_tests::peer::verbs::Done;

use super::stand::{Initiator, Joined, Stand, check, fill};

const SIZES: [usize; 13] = [
    0, 1, 3, 4, 64, 1000, 1428, 1436, 1448, 1461, 4096, 65_537, 1_000_003,
];
/// Where each message begins in source and sink: nothing is aligned.
const AT: usize = 3;
/// Bytes after the message that stay as they were.
const GUARD: usize = 16;
const MEMORY: usize = 1 << 20;

const SENT: u64 = 0xa1;
const BEFORE: u64 = 0xb2;

/// One message of a size, and what both ends see of it.
type Message = fn(&mut Joined, usize);

const MESSAGES: [(&str, Message); 8] = [
    ("RDMA Write by us", write_by_us),
    ("RDMA Write by siw", write_by_siw),
    ("RDMA Read by us", read_by_us),
    ("RDMA Read by siw", read_by_siw),
    ("Send by us", |joined, size| send_by_us(joined, size, false)),
    ("Send with SE by us", |joined, size| {
        send_by_us(joined, size, true)
    }),
    ("Send by siw", |joined, size| {
        send_by_siw(joined, size, false)
    }),
    ("Send with SE by siw", |joined, size| {
        send_by_siw(joined, size, true)
    }),
];

pub fn run(stand: &Stand, cases: &mut Cases) {
    for initiator in Initiator::BOTH {
        for (name, message) in MESSAGES {
            let title = format!("{name}, {initiator:?} connecting");
            cases.run(title, || {
                // Not asked for by siw, CRCs are there in half of the cases.
                let mpa = MpaOptions {
                    crc: initiator == Initiator::Us,
                    ..MpaOptions::default()
                };
                let mut joined = stand.join(initiator, mpa, MEMORY);
                for size in SIZES {
                    eprintln!("  {size} bytes");
                    joined.ready(size);
                    message(&mut joined, size);
                }
                joined.part();
            });
        }
        cases.run(
            format!("Send with Invalidate by us, {initiator:?} connecting"),
            || {
                invalidates(stand, initiator, false);
                invalidates(stand, initiator, true);
            },
        );
        cases.run(
            format!("nothing stays behind, {initiator:?} connecting"),
            || {
                stand.assert_nothing_left();
            },
        );
    }
}

impl Joined {
    /// Fills both ends' sources with what will be sent, and their sinks with what will be changed.
    fn ready(&mut self, size: usize) {
        let whole = 0..AT + size + GUARD;
        fill(&self.source, SENT, whole.clone());
        fill(&self.ours.region, BEFORE, whole.clone());
        self.theirs.fill(1, SENT, whole.clone());
        self.theirs.fill(0, BEFORE, whole);
    }

    fn check_ours(&self, size: usize) {
        check(&self.ours.region, BEFORE, 0..AT);
        check(&self.ours.region, SENT, AT..AT + size);
        check(&self.ours.region, BEFORE, AT + size..AT + size + GUARD);
    }

    fn check_theirs(&mut self, size: usize) {
        self.theirs.check(0, BEFORE, 0..AT);
        self.theirs.check(0, SENT, AT..AT + size);
        self.theirs.check(0, BEFORE, AT + size..AT + size + GUARD);
    }

    /// A Send by us without a byte: what was sent before it has arrived when it has.
    fn flush_to_siw(&mut self) {
        self.theirs.order("receive 0 77 0 0 0");
        self.ours.post(WorkRequest::send(77, &[]));
        let _ = self.success(WrOpcode::Send);
        assert_eq!(self.theirs.done(0), Done::success(77, "receive", 0));
    }

    fn flush_to_us(&mut self) {
        self.ours.post_recv(78, 0..0);
        self.theirs.order("send 0 78 1 0 0");
        assert_eq!(self.success(WrOpcode::Recv).byte_len, 0);
        assert_eq!(self.theirs.done(0).status, "success");
    }
}

fn write_by_us(joined: &mut Joined, size: usize) {
    let sink = joined.their_sink.offset(AT as u64);
    let work = [joined.from(AT..AT + size)];
    joined.ours.post(WorkRequest::write(1, &work, sink));
    let _ = joined.success(WrOpcode::Write);
    joined.flush_to_siw();
    joined.check_theirs(size);
}

fn write_by_siw(joined: &mut Joined, size: usize) {
    let sink = joined.ours.remote().offset(AT as u64);
    let order = format!("write 0 2 1 {AT} {size} {} {}", sink.stag, sink.addr);
    joined.theirs.order(&order);
    assert_eq!(joined.theirs.done(0).status, "success");
    joined.flush_to_us();
    joined.check_ours(size);
}

fn read_by_us(joined: &mut Joined, size: usize) {
    let from = joined.their_source.offset(AT as u64);
    let into = [joined.ours.element(AT..AT + size)];
    joined.ours.post(WorkRequest::read(3, &into, from));
    assert_eq!(joined.success(WrOpcode::Read).byte_len as usize, size);
    joined.check_ours(size);
}

fn read_by_siw(joined: &mut Joined, size: usize) {
    let from = joined.source.remote(AT..AT + size).expect("a range");
    let order = format!("read 0 4 0 {AT} {size} {} {}", from.stag, from.addr);
    joined.theirs.order(&order);
    let done = joined.theirs.done(0);
    assert_eq!((done.id, done.status.as_str()), (4, "success"), "{done:?}");
    joined.check_theirs(size);
}

fn send_by_us(joined: &mut Joined, size: usize, solicit: bool) {
    joined.theirs.order(&format!("receive 0 5 0 {AT} {size}"));
    let element = [joined.from(AT..AT + size)];
    let send = WorkRequest::send(6, &element);
    joined
        .ours
        .post(if solicit { send.solicited() } else { send });
    let _ = joined.success(WrOpcode::Send);
    let bytes = u32::try_from(size).expect("a size");
    assert_eq!(joined.theirs.done(0), Done::success(5, "receive", bytes));
    joined.check_theirs(size);
}

fn send_by_siw(joined: &mut Joined, size: usize, solicit: bool) {
    joined.ours.post_recv(7, AT..AT + size);
    let verb = if solicit { "solicit" } else { "send" };
    joined.theirs.order(&format!("{verb} 0 8 1 {AT} {size}"));
    let done = joined.success(WrOpcode::Recv);
    assert_eq!((done.byte_len as usize, done.solicited), (size, solicit));
    assert_eq!(joined.theirs.done(0).status, "success");
    joined.check_ours(size);
}

/// The STag works, is invalidated with a Send's delivery, and works no more.
fn invalidates(stand: &Stand, initiator: Initiator, solicit: bool) {
    let mut joined = stand.join(initiator, MpaOptions::default(), MEMORY);
    let sink = joined.their_sink;
    joined.ready(64);
    write_by_us(&mut joined, 64);
    joined.theirs.order("receive 0 9 1 0 64");
    let element = [joined.from(0..64)];
    let send = WorkRequest::send_with_invalidate(10, &element, sink.stag);
    joined
        .ours
        .post(if solicit { send.solicited() } else { send });
    let _ = joined.success(WrOpcode::SendInvalidate);
    assert_eq!(joined.theirs.done(0), Done::success(9, "receive", 64));
    joined.theirs.check(1, SENT, 0..64);
    // Another STag still does.
    let other = joined.their_source;
    joined.ours.post(WorkRequest::write(11, &element, other));
    let _ = joined.success(WrOpcode::Write);
    joined.flush_to_siw();
    joined.ours.post(WorkRequest::write(12, &element, sink));
    let _ = joined.success(WrOpcode::Write);
    let control = 0x1100;
    let refused = DisconnectReason::TerminateReceived { control };
    assert_eq!(joined.ours.ending(), refused);
    joined.theirs.check(0, SENT, AT..AT + 64);
}
