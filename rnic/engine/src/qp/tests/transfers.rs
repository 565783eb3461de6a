use rnic_ipc::work::{WC_SOLICITED, WC_WITH_INVALIDATE, WR_SOLICITED};

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

/// Lengths around every edge that a segment has.
const LENGTHS: [u32; 12] = [0, 1, 3, 4, 5, 1023, 1424, 1425, 1428, 1429, 5000, 65537];

#[test]
fn a_write_places_its_bytes_and_nothing_beside_them() {
    let mut random = Random::new(1);
    for len in LENGTHS {
        let (mut a, mut b) = joined();
        let bytes = bytes(&mut random, len as usize);
        a.fill(SOURCE, &bytes);
        a.post_send(&write(9, &[sge(SOURCE, len)], SINK));
        pump(&mut a, &mut b);
        assert_eq!(b.read(SINK, len as usize), bytes);
        assert_eq!(b.read(SINK - 8, 8), [0; 8]);
        assert_eq!(b.read(SINK + u64::from(len), 8), [0; 8]);
        assert_eq!(statuses(&a.sends()), [(9, WcStatus::Success)]);
        assert!(b.recvs().is_empty(), "a Write is not delivered");
        assert_eq!(b.counters.bytes_placed, u64::from(len));
        assert_eq!(a.counters.bytes_gathered, u64::from(len));
        assert_eq!((a.counters.writes_sent, b.counters.writes_received), (1, 1));
    }
}

#[test]
fn a_send_takes_the_oldest_receive_and_tells_its_length() {
    let mut random = Random::new(2);
    for len in LENGTHS {
        let (mut a, mut b) = joined();
        let bytes = bytes(&mut random, len as usize);
        a.fill(SOURCE, &bytes);
        b.post_recv(1, &[sge(SINK, 70_000)]);
        b.post_recv(2, &[sge(SINK, 70_000)]);
        a.post_send(&send(5, &[sge(SOURCE, len)]));
        pump(&mut a, &mut b);
        assert_eq!(b.read(SINK, len as usize), bytes);
        let received = b.recvs();
        assert_eq!(statuses(&received), [(1, WcStatus::Success)]);
        assert_eq!(
            (received[0].byte_len, received[0].flags, received[0].qp),
            (len, 0, 7)
        );
        assert_eq!(statuses(&a.sends()), [(5, WcStatus::Success)]);
    }
}

#[test]
fn a_read_brings_the_remote_bytes_and_completes_when_they_are_all_there() {
    let mut random = Random::new(3);
    for len in LENGTHS {
        let (mut a, mut b) = joined();
        let bytes = bytes(&mut random, len as usize);
        b.fill(SOURCE, &bytes);
        a.post_send(&read(5, sge(SINK, len), SOURCE));
        let request = a.produce(MULPDU).unwrap();
        assert!(a.produce(MULPDU).is_none());
        assert!(a.sends().is_empty());
        b.receive(&request);
        pump(&mut a, &mut b);
        assert_eq!(a.read(SINK, len as usize), bytes);
        let done = a.sends();
        assert_eq!(statuses(&done), [(5, WcStatus::Success)]);
        assert_eq!(done[0].byte_len, len);
        assert!(
            b.recvs().is_empty() && b.sends().is_empty(),
            "the source's client sees nothing"
        );
    }
}

#[test]
fn elements_are_gathered_and_scattered_in_order() {
    let (mut a, mut b) = joined();
    a.fill(SOURCE, b"abcdefghij");
    b.post_recv(
        1,
        &[
            sge(SINK, 3),
            sge(SINK + 100, 0),
            sge(SINK + 50, 4),
            sge(SINK + 20, 90),
        ],
    );
    a.post_send(&send(5, &[sge(SOURCE + 5, 5), sge(0, 0), sge(SOURCE, 5)]));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 3), b"fgh");
    assert_eq!(b.read(SINK + 50, 4), b"ijab");
    assert_eq!(b.read(SINK + 20, 4), b"cde\0");
    assert_eq!(b.recvs()[0].byte_len, 10);
}

#[test]
fn a_zero_length_write_or_read_does_not_look_at_the_stag() {
    let (mut a, mut b) = joined();
    a.post_send(&remote(
        WrOpcode::Write,
        1,
        &[],
        Stag(0xdead_beef),
        u64::MAX,
    ));
    a.post_send(&remote(WrOpcode::Read, 2, &[], Stag(0xdead_beef), u64::MAX));
    a.post_send(&remote(
        WrOpcode::Read,
        3,
        &[Sge::default()],
        Stag(0xdead_beef),
        0,
    ));
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(1, ok), (2, ok), (3, ok)]);
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn a_solicited_send_says_so_and_wakes_who_waits_for_no_other() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[sge(SINK, 8)]);
    b.post_recv(2, &[sge(SINK, 8)]);
    b.recv_cq.arm(true);
    let mut wakeups = |b: &mut End, request: &WorkRequest| {
        a.post_send(request);
        pump(&mut a, b);
        b.cqs.flush_wakeups();
        let flags = rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&b.recv_woken, &mut [0; 8], flags).map_or(0, |(count, _)| count)
    };
    assert_eq!(wakeups(&mut b, &send(4, &[sge(SOURCE, 8)])), 0);
    let mut solicited = send(5, &[sge(SOURCE, 8)]);
    solicited.slot.flags |= WR_SOLICITED;
    assert_eq!(wakeups(&mut b, &solicited), 1);
    let flags: Vec<_> = b.recvs().iter().map(|done| done.flags).collect();
    assert_eq!(flags, [0, WC_SOLICITED]);
}

#[test]
fn a_send_with_invalidate_ends_the_rights_before_it_is_delivered() {
    let (mut a, mut b) = joined();
    b.post_recv(
        1,
        &[Sge {
            addr: BASE,
            length: 8,
            lkey: LOCAL_STAG.0,
        }],
    );
    let mut invalidate = request(WrOpcode::SendInvalidate, 5, &[sge(SOURCE, 8)]);
    invalidate.slot.rkey = STAG.0;
    a.post_send(&invalidate);
    pump(&mut a, &mut b);
    let received = b.recvs();
    assert_eq!(statuses(&received), [(1, WcStatus::Success)]);
    assert_eq!(received[0].flags, WC_WITH_INVALIDATE);
    assert_eq!(received[0].invalidated, STAG.0);
    a.post_send(&write(6, &[sge(SOURCE, 8)], SINK));
    pump(&mut a, &mut b);
    assert_eq!(b.counters.refused_invalid_stag, 1);
    assert_eq!(b.read(SINK, 8), [0; 8]);
}

#[test]
fn sends_posted_behind_a_read_complete_behind_it() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[sge(SINK, 8)]);
    a.post_send(&read(5, sge(SINK, 8), SOURCE));
    a.post_send(&send(6, &[sge(SOURCE, 8)]));
    a.post_send(&write(7, &[sge(SOURCE, 8)], SINK));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    assert_eq!(statuses(&b.recvs()), [(1, WcStatus::Success)]);
    assert!(a.sends().is_empty());
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(5, ok), (6, ok), (7, ok)]);
}

#[test]
fn no_more_reads_are_outstanding_than_the_ord_and_what_is_behind_waits() {
    let (mut a, mut b) = joined();
    for wr_id in 0..6 {
        a.post_send(&read(wr_id, sge(SINK + wr_id * 8, 8), SOURCE));
    }
    a.post_send(&write(6, &[sge(SOURCE, 8)], SINK));
    let mut requests = Vec::new();
    while let Some(fpdu) = a.produce(MULPDU) {
        requests.push(fpdu);
    }
    assert_eq!(requests.len(), 4);
    for fpdu in &requests {
        b.receive(fpdu);
    }
    a.receive(&b.produce(MULPDU).unwrap());
    b.receive(&a.produce(MULPDU).expect("one is answered, one more may go"));
    assert!(a.produce(MULPDU).is_none());
    pump(&mut a, &mut b);
    let all: Vec<_> = (0..7).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(statuses(&a.sends()), all);
}

#[test]
fn read_responses_and_own_work_take_turns_message_by_message() {
    let (mut a, mut b) = joined();
    for wr_id in 0..2 {
        a.post_send(&read(wr_id, sge(SINK, 3000), SOURCE));
        b.post_send(&write(wr_id, &[sge(SOURCE, 3000)], SINK));
    }
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    let mut opcodes = Vec::new();
    while let Some(fpdu) = b.produce(MULPDU) {
        opcodes.push(fpdu[3] & 0xf);
    }
    let (write, response) = (0, 2);
    let two_each = [[write; 3], [response; 3], [write; 3], [response; 3]].concat();
    let other_order = [[response; 3], [write; 3], [response; 3], [write; 3]].concat();
    assert!(opcodes == two_each || opcodes == other_order, "{opcodes:?}");
}

#[test]
fn a_message_that_was_begun_is_finished_before_another_begins() {
    let (mut a, mut b) = joined();
    b.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    b.post_send(&write(2, &[sge(SOURCE, 3000)], SINK));
    let opcode = |fpdu: Option<Vec<u8>>| fpdu.map(|bytes| bytes[3] & 0xf);
    let (write, response) = (Some(0), Some(2));
    assert_eq!(opcode(b.produce(MULPDU)), write);
    assert_eq!(opcode(b.produce(MULPDU)), write);
    a.post_send(&read(1, sge(SINK, 3000), SOURCE));
    b.receive(&a.produce(MULPDU).unwrap());
    assert_eq!(opcode(b.produce(MULPDU)), write);
    assert_eq!(opcode(b.produce(MULPDU)), write);
    assert_eq!(opcode(b.produce(MULPDU)), response);
    b.post_send(&super::write(3, &[sge(SOURCE, 8)], SINK));
    assert_eq!(opcode(b.produce(MULPDU)), response);
    assert_eq!(opcode(b.produce(MULPDU)), response);
    assert_eq!(opcode(b.produce(MULPDU)), write);
}

#[test]
fn unsignaled_work_completes_silently_unless_it_fails() {
    let mut a = End::with(attributes(false), CQ_DEPTH);
    let mut b = End::new();
    open(&mut a, &mut b, &negotiated(None));
    let mut quiet = write(1, &[sge(SOURCE, 8)], SINK);
    quiet.slot.flags = 0;
    a.post_send(&quiet);
    a.post_send(&write(2, &[sge(SOURCE, 8)], SINK));
    let mut wrong = write(3, &[sge(BASE - 1, 8)], SINK);
    wrong.slot.flags = 0;
    a.post_send(&wrong);
    pump(&mut a, &mut b);
    let expected = [(2, WcStatus::Success), (3, WcStatus::LocalProtection)];
    assert_eq!(statuses(&a.sends()), expected);
}

#[test]
fn without_crc_agreed_none_is_checked_and_none_is_sent() {
    for markers in [Markers::Off, Markers::On] {
        let (mut a, mut b) = joined_with(&Negotiated {
            crc: false,
            markers_in: markers,
            markers_out: markers,
            ..negotiated(None)
        });
        a.fill(SOURCE, b"12345678");
        a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
        let mut fpdu = a.produce(MULPDU).unwrap();
        let crc = fpdu.len() - 4;
        assert_eq!(fpdu[crc..], [0; 4], "{markers:?}");
        fpdu[crc] = 1;
        b.receive(&fpdu);
        assert_eq!(b.read(SINK, 8), b"12345678", "{markers:?}");
    }
}

#[test]
fn a_full_memory_of_pending_work_holds_the_send_queue_back() {
    let (mut a, mut b) = joined();
    a.post_send(&read(100, sge(SINK, 8), SOURCE));
    for wr_id in 0..u64::from(DEPTH) + 4 {
        a.post_send(&write(wr_id, &[sge(SOURCE, 8)], SINK));
    }
    let mut fpdus = Vec::new();
    while let Some(fpdu) = a.produce(MULPDU) {
        fpdus.push(fpdu);
    }
    assert_eq!(fpdus.len(), DEPTH as usize);
    for fpdu in fpdus {
        b.receive(&fpdu);
    }
    pump(&mut a, &mut b);
    assert_eq!(a.sends().len(), DEPTH as usize + 5);
}
