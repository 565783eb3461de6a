//! Immediate Data (RFC 7306 section 6).

use rnic_ipc::work::{WC_SOLICITED, WC_WITH_IMMEDIATE, WR_SOLICITED};
use rnic_proto::ddp::DdpError;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const DATA: u64 = 0x0102_0304_0506_0708;

/// RFC 7306 section 6.3: it consumes one receive; section 6.1: the receiver gets the 8 bytes.
#[test]
fn immediate_data_takes_a_receive_and_lies_in_its_completion() {
    let (mut a, mut b) = joined();
    b.fill(SINK, &[0xee; 16]);
    b.post_recv(1, &[sge(SINK, 16)]);
    b.post_recv(2, &[]);
    a.post_send(&immediate(WrOpcode::Immediate, 5, &[], 0, DATA));
    let mut solicited = immediate(WrOpcode::Immediate, 6, &[], 0, !DATA);
    solicited.slot.flags |= WR_SOLICITED;
    a.post_send(&solicited);
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(5, ok), (6, ok)]);
    let received = b.recvs();
    assert_eq!(statuses(&received), [(1, ok), (2, ok)]);
    let told = |n: usize| {
        (
            received[n].immediate,
            received[n].flags,
            received[n].byte_len,
        )
    };
    assert_eq!(told(0), (DATA, WC_WITH_IMMEDIATE, 0));
    assert_eq!(told(1), (!DATA, WC_WITH_IMMEDIATE | WC_SOLICITED, 0));
    assert_eq!(b.read(SINK, 16), [0xee; 16], "its memory is not touched");
    let counted = (a.counters.immediates_sent, b.counters.immediates_received);
    assert_eq!(counted, (2, 2));
}

/// RFC 7306 section 7: Sends and Immediate Data complete in the order in which they were posted.
#[test]
fn immediate_data_and_sends_complete_in_order() {
    let (mut a, mut b) = joined();
    for wr_id in 0..4 {
        b.post_recv(wr_id, &[sge(SINK, 3000)]);
    }
    a.post_send(&send(0, &[sge(SOURCE, 3000)]));
    a.post_send(&immediate(WrOpcode::Immediate, 1, &[], 0, 1));
    a.post_send(&send(2, &[sge(SOURCE, 8)]));
    a.post_send(&immediate(WrOpcode::Immediate, 3, &[], 0, 3));
    pump(&mut a, &mut b);
    let flags: Vec<_> = b
        .recvs()
        .iter()
        .map(|done| (done.wr_id, done.flags))
        .collect();
    let with = WC_WITH_IMMEDIATE;
    assert_eq!(flags, [(0, 0), (1, with), (2, 0), (3, with)]);
}

/// RFC 7306 section 7: Immediate Data is completed after the Write before it is placed and delivered.
#[test]
fn a_write_with_immediate_is_placed_before_the_immediate_data_completes() {
    let mut random = Random::new(4);
    for len in [0, 1, 8, 5000] {
        let (mut a, mut b) = joined();
        let bytes = bytes(&mut random, len as usize);
        a.fill(SOURCE, &bytes);
        b.post_recv(1, &[]);
        let sges = [sge(SOURCE, len)];
        a.post_send(&immediate(WrOpcode::WriteImmediate, 5, &sges, SINK, DATA));
        let mut fpdus = Vec::new();
        while let Some(fpdu) = a.produce(MULPDU) {
            fpdus.push(fpdu);
        }
        let (last, before) = fpdus.split_last().unwrap();
        for fpdu in before {
            b.receive(fpdu);
        }
        assert!(b.recvs().is_empty(), "a Write completes nothing");
        assert_eq!(b.read(SINK, len as usize), bytes);
        b.receive(last);
        assert_eq!(b.recvs()[0].immediate, DATA);
        let done = a.sends();
        assert_eq!(statuses(&done), [(5, WcStatus::Success)], "one completion");
        assert_eq!(done[0].opcode, WrOpcode::WriteImmediate as u8);
    }
}

/// RFC 7306 section 6.4: as a Send, it needs a receive.
#[test]
fn immediate_data_without_a_receive_has_no_buffer() {
    let (mut a, mut b) = joined();
    a.post_send(&immediate(WrOpcode::Immediate, 1, &[], 0, DATA));
    pump(&mut a, &mut b);
    assert_eq!(b.counters.refused_no_receive, 1);
    let control = control(DdpError::NoBuffer);
    let sent = Some(CloseKind::AfterTerminateSent { control });
    assert_eq!(b.qp.wants_close(), sent);
}

/// RFC 7306 section 7: the Read Response is not generated until the Immediate Data is completed.
#[test]
fn a_read_behind_immediate_data_is_answered_behind_its_completion() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[]);
    a.post_send(&immediate(WrOpcode::Immediate, 1, &[], 0, DATA));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    b.receive(&a.produce(MULPDU).unwrap());
    assert_eq!(b.recvs().len(), 1);
    assert!(b.produce(MULPDU).is_none());
    pump(&mut a, &mut b);
    assert_eq!(a.sends().len(), 2);
}

#[test]
fn immediate_data_has_no_elements_with_bytes_and_one_operand() {
    let with_bytes = immediate(WrOpcode::Immediate, 1, &[sge(SOURCE, 1)], 0, DATA);
    let mut without_operand = request(WrOpcode::Send, 1, &[]);
    without_operand.slot.opcode = WrOpcode::Immediate as u8;
    for work in [with_bytes, without_operand] {
        let (mut a, mut b) = joined();
        a.post_send(&work);
        pump(&mut a, &mut b);
        let impossible = [(1, WcStatus::LocalQpOperation)];
        assert_eq!(statuses(&a.sends()), impossible);
    }
}

/// RFC 7306 section 8.1, rule 1: an error found while a message is made ends the stream, whatever
/// was to follow: a Write that fails is not announced by its Immediate Data.
#[test]
fn a_write_that_fails_is_not_followed_by_its_immediate_data() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[]);
    let sges = [sge(SOURCE, 5000)];
    a.post_send(&immediate(WrOpcode::WriteImmediate, 5, &sges, SINK, DATA));
    b.receive(&a.produce(MULPDU).unwrap());
    assert!(a.stags.remove(STAG));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(5, WcStatus::LocalProtection)]);
    assert!(b.recvs().is_empty());
    assert_eq!(b.counters.terminates_received, 1);
}
