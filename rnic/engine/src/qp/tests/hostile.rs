//! FPDUs that no honest peer sends.

use rnic_proto::ddp::DdpError;
use rnic_proto::ddp::header::{Tagged, Untagged};
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::Layout;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::{Opcode, RdmapError, ReadRequest, SendKind, SendWord};
use rnic_proto::{MessageOffset, Msn, Qn};

use super::markers::marked;
use super::*;
use crate::conn::PLACED_AT_ONCE;

pub(super) const SINK: u64 = BASE + 0x2_0000;
pub(super) const SEND: Opcode = Opcode::Send(SendKind {
    solicited: false,
    word: SendWord::Unused,
});

pub(super) fn fpdu(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let ulpdu_len = header.len() + payload.len();
    let layout = Layout::new(Markers::Off, 0, ulpdu_len);
    let mut out = vec![0; layout.len()];
    out[2..2 + header.len()].copy_from_slice(header);
    out[2 + header.len()..2 + ulpdu_len].copy_from_slice(payload);
    fpdu::finish(&mut out, &layout, true);
    out
}

pub(super) fn tagged(opcode: Opcode, stag: Stag, to: u64) -> Tagged {
    let ulp = opcode.control_byte();
    Tagged {
        last: true,
        version: 1,
        ulp,
        stag,
        to: TaggedOffset(to),
    }
}

pub(super) fn untagged(opcode: Opcode, qn: Qn, msn: u32, mo: u32) -> Untagged {
    Untagged {
        last: true,
        version: 1,
        ulp: opcode.control_byte(),
        ulp_word: 0,
        qn,
        msn: Msn(msn),
        mo: MessageOffset(mo),
    }
}

/// What the responder says to an FPDU from an initiator that speaks first.
fn verdict(fpdu: &[u8]) -> (End, u16) {
    let (_, mut b) = joined_with(&negotiated(None));
    b.post_recv(4, &[sge(SINK, 64)]);
    b.receive(fpdu);
    assert!(b.produce(MULPDU).is_some());
    let Some(CloseKind::AfterTerminateSent { control }) = b.qp.wants_close() else {
        panic!("no Terminate was sent")
    };
    assert_eq!(b.read(BASE, LEN), vec![0; LEN], "nothing is placed");
    b.assert_guarded_untouched();
    (b, control)
}

#[test]
fn a_wrong_crc_is_found_before_anything_is_placed() {
    let write = fpdu(&tagged(Opcode::Write, STAG, SINK).to_bytes(), b"12345678");
    let empty = fpdu(&tagged(Opcode::Write, STAG, SINK).to_bytes(), b"");
    for at in 2..write.len() {
        let mut wrong = write.clone();
        wrong[at] ^= 0x10;
        let (b, found) = verdict(&[&empty[..], &wrong].concat());
        assert_eq!(found, control(MpaError::CrcMismatch));
        assert_eq!(b.counters.crc_errors, 1);
    }
}

/// RFC 5044 section 7.1.2, rule 4: a responder validates an FPDU before it sends one, and a
/// Terminate is one.
#[test]
fn a_responder_answers_a_first_fpdu_that_is_not_valid_with_a_reset() {
    let mut wrong = fpdu(&tagged(Opcode::Write, STAG, SINK).to_bytes(), b"12345678");
    wrong[20] ^= 1;
    let (_, mut b) = joined_with(&negotiated(None));
    b.post_send(&send(1, &[sge(SINK, 8)]));
    b.receive(&wrong);
    assert!(b.produce(MULPDU).is_none());
    let control = control(MpaError::CrcMismatch);
    assert_eq!(b.qp.wants_close(), Some(CloseKind::PeerFault { control }));
    assert_eq!((b.counters.crc_errors, b.counters.fpdus_received), (1, 0));
    assert_eq!(b.read(BASE, LEN), vec![0; LEN]);
}

#[test]
fn each_wrong_field_has_its_number() {
    let write = tagged(Opcode::Write, STAG, SINK);
    let send = untagged(SEND, Qn::SEND, 1, 0);
    let reserved = |ulp: u8| ulp | 0x0f;
    let cases: [(Vec<u8>, TerminateError); 12] = [
        (fpdu(&[], &[]), RdmapError::OperationUnspecified.into()),
        (
            fpdu(&[0x41], &[0; 16]),
            RdmapError::OperationUnspecified.into(),
        ),
        (
            fpdu(
                &Tagged {
                    version: 0,
                    ..write
                }
                .to_bytes(),
                b"1",
            ),
            DdpError::TaggedVersion.into(),
        ),
        (
            fpdu(&Untagged { version: 2, ..send }.to_bytes(), b"1"),
            DdpError::UntaggedVersion.into(),
        ),
        (
            fpdu(&Tagged { ulp: 0, ..write }.to_bytes(), b"1"),
            RdmapError::InvalidVersion.into(),
        ),
        (
            fpdu(
                &Tagged {
                    ulp: reserved(write.ulp),
                    ..write
                }
                .to_bytes(),
                b"1",
            ),
            RdmapError::UnexpectedOpcode.into(),
        ),
        (
            fpdu(&tagged(Opcode::Write, STAG, u64::MAX).to_bytes(), b"12"),
            DdpError::ToWrap.into(),
        ),
        (
            fpdu(&untagged(SEND, Qn(4), 1, 0).to_bytes(), b"1"),
            DdpError::InvalidQn.into(),
        ),
        (
            fpdu(&untagged(SEND, Qn::SEND, 2, 0).to_bytes(), b"1"),
            DdpError::MsnRange.into(),
        ),
        (
            fpdu(&untagged(SEND, Qn::SEND, 1, 1).to_bytes(), b"1"),
            DdpError::InvalidMo.into(),
        ),
        (
            fpdu(&untagged(SEND, Qn::READ_REQUEST, 1, 0).to_bytes(), b"1"),
            RdmapError::UnexpectedOpcode.into(),
        ),
        (
            fpdu(&tagged(Opcode::ReadRequest, STAG, SINK).to_bytes(), b"1"),
            RdmapError::UnexpectedOpcode.into(),
        ),
    ];
    for (bytes, error) in cases {
        let (b, found) = verdict(&bytes);
        assert_eq!(found, control(error), "{error}");
        assert_eq!(b.counters.refused_protocol, 1);
    }
}

#[test]
fn a_read_response_that_nobody_asked_for_places_nothing() {
    let response = fpdu(
        &tagged(Opcode::ReadResponse, STAG, SINK).to_bytes(),
        b"12345678",
    );
    verdict(&response);
}

#[test]
fn read_requests_beyond_the_ird_have_no_buffer() {
    let (_, mut b) = joined_with(&negotiated(None));
    let request = ReadRequest {
        sink_stag: Stag(1),
        sink_to: TaggedOffset(u64::MAX),
        size: 4000,
        source_stag: STAG,
        source_to: TaggedOffset(SINK),
    };
    for msn in 1..=5 {
        let header = untagged(Opcode::ReadRequest, Qn::READ_REQUEST, msn, 0);
        b.receive(&fpdu(&header.to_bytes(), &request.to_bytes()));
    }
    assert_eq!(b.counters.read_requests_received, 4);
    assert_eq!(b.counters.refused_ird_exceeded, 1);
    assert!(b.produce(MULPDU).is_some());
    let control = control(DdpError::NoBuffer);
    assert_eq!(
        b.qp.wants_close(),
        Some(CloseKind::AfterTerminateSent { control })
    );
}

#[test]
fn a_read_request_whose_sink_wraps_is_the_peers_own_trouble() {
    let (_, mut b) = joined_with(&negotiated(None));
    let request = ReadRequest {
        sink_stag: Stag(1),
        sink_to: TaggedOffset(u64::MAX - 10),
        size: 4000,
        source_stag: STAG,
        source_to: TaggedOffset(SINK),
    };
    let header = untagged(Opcode::ReadRequest, Qn::READ_REQUEST, 1, 0);
    b.receive(&fpdu(&header.to_bytes(), &request.to_bytes()));
    for _ in 0..3 {
        assert!(b.produce(MULPDU).is_some());
    }
    assert!(b.produce(MULPDU).is_none());
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn a_send_in_endless_empty_segments_takes_one_receive() {
    let (_, mut b) = joined_with(&negotiated(None));
    b.post_recv(4, &[sge(SINK, 64)]);
    let more = Untagged {
        last: false,
        ..untagged(SEND, Qn::SEND, 1, 0)
    };
    for _ in 0..1000 {
        b.receive(&fpdu(&more.to_bytes(), &[]));
    }
    b.receive(&fpdu(&untagged(SEND, Qn::SEND, 1, 0).to_bytes(), b"end"));
    assert_eq!(statuses(&b.recvs()), [(4, WcStatus::Success)]);
    assert_eq!(b.read(SINK, 3), b"end");
}

#[test]
fn after_an_error_everything_is_used_and_nothing_done() {
    let bad = fpdu(&untagged(SEND, Qn(4), 1, 0).to_bytes(), b"1");
    let good = fpdu(&tagged(Opcode::Write, STAG, SINK).to_bytes(), b"12345678");
    let (_, mut b) = joined_with(&negotiated(None));
    b.receive(&[&bad[..], &good, &good[..5]].concat());
    assert!(b.stream.is_empty());
    b.receive(&good);
    assert!(b.stream.is_empty());
    assert_eq!(b.read(SINK, 8), [0; 8]);
    assert_eq!(b.counters.fpdus_received, 1);
}

#[test]
fn random_segments_never_panic_and_never_touch_what_was_not_given() {
    for seed in seeds(50) {
        let random = &mut Random::new(seed);
        let (mut a, mut b) = joined_with(&negotiated(None));
        for wr_id in 0..4 {
            b.post_recv(wr_id, &[sge(SINK, 64)]);
            b.post_send(&read(wr_id, sge(SINK, 64), SINK));
        }
        let stags = [
            STAG,
            LOCAL_STAG,
            BARE_STAG,
            OTHER_STAG,
            Stag(random.next() as u32),
        ];
        let mut msn = [1u32; 3];
        for _ in 0..20 {
            let stag = stags[random.below(5) as usize];
            let to = BASE
                .wrapping_add(random.below(64))
                .wrapping_sub(random.below(8));
            let len = random.below(80) as usize;
            let bytes = bytes(random, len);
            let ulp = 0x40 | random.below(9) as u8;
            let header = if random.below(2) == 0 {
                let mut header = tagged(Opcode::Write, stag, to);
                header.ulp = ulp;
                header.last = random.below(2) == 0;
                header.to_bytes().to_vec()
            } else {
                let queue = random.below(3) as usize;
                let mut header = untagged(SEND, Qn(queue as u32), msn[queue], 0);
                msn[queue] += 1;
                header.ulp = ulp;
                header.ulp_word = stag.0;
                header.last = random.below(4) != 0;
                header.to_bytes().to_vec()
            };
            let mut bytes = fpdu(&header, &bytes);
            if random.below(10) == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1_u8 << random.below(8);
            }
            b.stream.extend_from_slice(&bytes);
            b.receive_cut(random);
            while let Some(answer) = b.produce(MULPDU) {
                a.receive(&answer);
            }
        }
        b.assert_guarded_untouched();
        b.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
        assert_eq!(
            b.sends().len() + b.recvs().len(),
            8,
            "seed {seed}: all work ends, once"
        );
    }
}

/// What is placed early is placed once, and its delivery is all that its turn brings.
#[test]
fn an_fpdu_is_placed_early_where_it_may_be_and_waits_where_it_may_not() {
    let terms = Negotiated {
        markers_in: Markers::On,
        ..negotiated(None)
    };
    let (_, mut b) = joined_with(&terms);
    let first = marked(&tagged(Opcode::Write, STAG, SINK).to_bytes(), &[1; 600], 0);
    let at = first.len() as u64;
    let good = marked(
        &tagged(Opcode::Write, STAG, SINK + 600).to_bytes(),
        &[2; 600],
        at,
    );
    let behind = at + good.len() as u64;
    let forbidden = marked(
        &tagged(Opcode::Write, Stag(0xdead_0000), 0).to_bytes(),
        &[3; 600],
        behind,
    );
    let bytes = [&good[..], &forbidden].concat();
    let mut placed = [PlacedFpdu::default(); PLACED_AT_ONCE];
    let count = b.with_ctx(|qp, ctx| qp.place_early(ctx, &[&bytes], at, false, &mut placed));
    assert_eq!(count, 1, "the second names no memory");
    assert_eq!((placed[0].from, placed[0].len), (0, good.len()));
    assert_eq!(b.read(SINK + 600, 600), [2; 600]);
    assert_eq!(b.counters.fpdus_received, 0, "nothing is delivered");
    b.receive(&first);
    let PlacedFpdu {
        len,
        header,
        ulpdu_len,
        ..
    } = placed[0];
    b.with_ctx(|qp, ctx| qp.deliver_placed(ctx, len as u64, &header, ulpdu_len));
    assert_eq!(b.counters.writes_received, 2);
    assert_eq!(b.read(SINK, 1200), [[1; 600], [2; 600]].concat());
    b.receive(&forbidden);
    let control = TerminateError::from(DdpError::InvalidStag).control();
    let terminate = b.produce(MULPDU).expect("a Terminate");
    assert_eq!(terminate[20..22], control.to_be_bytes());
}

/// FPDUs of Writes and Sends as a peer sends them, some with bytes of their headers changed.
fn some_wrong(random: &mut Random) -> Vec<u8> {
    let (mut stream, mut msn, mut mo) = (Vec::new(), 1, 0);
    for _ in 0..=random.below(8) {
        let last = random.below(2) == 0;
        let len = random.below(40) as usize;
        let payload = bytes(random, len);
        let mut header = if random.below(2) == 0 {
            let write = tagged(Opcode::Write, STAG, SINK + random.below(2000));
            Tagged { last, ..write }.to_bytes().to_vec()
        } else {
            let send = untagged(SEND, Qn::SEND, msn, mo);
            (msn, mo) = match last {
                true => (msn + 1, 0),
                false => (msn, mo + len as u32),
            };
            Untagged { last, ..send }.to_bytes().to_vec()
        };
        if random.below(6) == 0 {
            let at = random.below(header.len() as u64) as usize;
            header[at] ^= 1_u8 << random.below(8);
        }
        let mut fpdu = fpdu(&header, &payload);
        if random.below(30) == 0 {
            fpdu[0] ^= 1_u8 << random.below(8);
        }
        stream.append(&mut fpdu);
    }
    stream
}

#[test]
fn an_fpdu_is_judged_alike_in_one_piece_and_in_several() {
    for seed in seeds(1000) {
        let mut random = Random::new(seed);
        let stream = some_wrong(&mut random);
        let outcome = |random: Option<&mut Random>| {
            let (_, mut b) = joined_with(&negotiated(None));
            for wr_id in 0..3 {
                b.post_recv(wr_id, &[sge(SINK + 4096 * (wr_id + 1), 100)]);
            }
            match random {
                None => b.receive(&stream),
                Some(random) => {
                    b.stream.clone_from(&stream);
                    b.receive_cut(random);
                    let rest = std::mem::take(&mut b.stream);
                    b.receive(&rest);
                }
            }
            let counters = format!("{:?}", b.counters);
            let terminate = b.produce(MULPDU);
            let memory = b.read(BASE, LEN);
            let left = (b.stream.clone(), b.qp.wants_close(), statuses(&b.recvs()));
            (counters, terminate, memory, left)
        };
        let (whole, cut) = (outcome(None), outcome(Some(&mut random)));
        assert!(whole.2 == cut.2, "seed {seed}: other bytes were placed");
        assert_eq!(
            (whole.0, whole.1, whole.3),
            (cut.0, cut.1, cut.3),
            "seed {seed}"
        );
    }
}
