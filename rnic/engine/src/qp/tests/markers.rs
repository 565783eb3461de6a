//! Markers anywhere in an FPDU, which is shown in one piece or in several.

use rnic_proto::Qn;
use rnic_proto::crc::crc_of;
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{CRC_LEN, Layout};
use rnic_proto::mpa::marker::MARKER_INTERVAL;
use rnic_proto::rdmap::Opcode;

use super::hostile::{SEND, SINK, tagged, untagged};
use super::*;

/// An FPDU with Markers, at `at` of its stream.
pub(super) fn marked(header: &[u8], payload: &[u8], at: u64) -> Vec<u8> {
    let ulpdu = [header, payload].concat();
    let layout = Layout::new(Markers::On, at, ulpdu.len());
    let mut out = vec![0; layout.len()];
    let mut from = 0;
    for span in layout.ulpdu(0, ulpdu.len()) {
        let len = span.len();
        out[span].copy_from_slice(&ulpdu[from..from + len]);
        from += len;
    }
    fpdu::finish(&mut out, &layout, true);
    out
}

/// What is wrong of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A byte, and so the CRC.
    Byte,
    /// The pointer of its last Marker, which the CRC covers.
    Marker,
    /// The STag or the queue, which the CRC covers.
    Header,
}

/// An FPDU of a Write or a Send, and what is wrong of it; none when it has no Marker that could be.
fn some_fpdu(
    random: &mut Random,
    write: bool,
    payload: &[u8],
    at: u64,
    wrong: Wrong,
) -> Option<Vec<u8>> {
    let beside = u32::from(wrong == Wrong::Header);
    let header = match write {
        true => tagged(Opcode::Write, Stag(STAG.0 ^ beside << 16), SINK)
            .to_bytes()
            .to_vec(),
        false => untagged(SEND, Qn(beside * 7), 1, 0).to_bytes().to_vec(),
    };
    let mut fpdu = marked(&header, payload, at);
    match wrong {
        Wrong::Nothing | Wrong::Header => {}
        Wrong::Byte => {
            // Not of the length: what it says might not be there.
            let behind = random.below(fpdu.len() as u64 - 8) as usize + 8;
            fpdu[behind] ^= 1 << random.below(8);
        }
        Wrong::Marker => {
            let layout = Layout::new(Markers::On, at, header.len() + payload.len());
            let (marker, _) = layout.markers().last()?;
            fpdu[marker + 3] ^= 4 << random.below(6);
            let (covered, crc) = fpdu.split_at_mut(layout.len() - CRC_LEN);
            crc.copy_from_slice(&crc_of([&*covered]).bytes());
        }
    }
    Some(fpdu)
}

/// A queue pair whose next FPDU is at `at` of the stream, and that was shown these pieces; `sound`: the
/// CRC of the first was looked at before.
fn outcome(at: u64, pieces: &[&[u8]], sound: bool) -> (End, String) {
    let mut b = End::new();
    let terms = Negotiated {
        markers_in: Markers::On,
        ..negotiated(None)
    };
    b.qp.begin_connecting().unwrap();
    b.qp.enter_rdma_mode(&terms, true);
    b.qp.receive.at = at;
    b.post_recv(1, &[sge(SINK, 100), sge(SINK + 100, 2000)]);
    let sound = CrcVerified {
        alone: u64::from(sound),
        ..CrcVerified::NONE
    };
    let used = b.with_ctx(|qp, ctx| qp.receive_checked(ctx, pieces, &sound));
    assert_eq!(used, pieces.concat().len());
    let said = (b.produce(MULPDU), b.qp.wants_close(), statuses(&b.recvs()));
    let told = format!("{said:?} {:?} {}", b.counters, b.qp.receive.at);
    (b, told)
}

#[test]
fn wherever_its_markers_are_an_fpdu_is_judged_alike_in_one_piece_and_in_several() {
    let kinds = [
        (true, 1),
        (true, 600),
        (true, 1416),
        (false, 30),
        (false, 1000),
    ];
    for at in (0..MARKER_INTERVAL as u64).step_by(4) {
        let mut random = Random::new(at);
        for (write, len) in kinds {
            let payload: Vec<u8> = bytes(&mut random, len)
                .iter()
                .map(|byte| byte | 1)
                .collect();
            for wrong in [Wrong::Nothing, Wrong::Byte, Wrong::Marker, Wrong::Header] {
                let Some(fpdu) = some_fpdu(&mut random, write, &payload, at, wrong) else {
                    continue;
                };
                let what = format!("{len} bytes at {at}, wrong: {wrong:?}");
                let (b, told) = outcome(at, &[&fpdu], false);
                let placed = b.read(SINK, len);
                assert_eq!(placed == payload, wrong == Wrong::Nothing, "{what}");
                assert_eq!(b.read(SINK + len as u64, 64), [0; 64], "{what}: too much");
                let errors = (b.counters.crc_errors, b.counters.marker_errors);
                let expected = match wrong {
                    Wrong::Byte => (1, 0),
                    Wrong::Marker => (0, 1),
                    _ => (0, 0),
                };
                assert_eq!(errors, expected, "{what}");

                let first = 1 + random.below(fpdu.len() as u64 - 1) as usize;
                let second = first + random.below((fpdu.len() - first) as u64) as usize;
                let cut = [&fpdu[..first], &fpdu[first..second], &fpdu[second..]];
                let (cut, told_of_cut) = outcome(at, &cut, false);
                assert_eq!(told, told_of_cut, "{what}");
                assert!(b.read(BASE, LEN) == cut.read(BASE, LEN), "{what}");
                if wrong != Wrong::Byte {
                    let (sound, told_of_sound) = outcome(at, &[&fpdu], true);
                    assert_eq!(told, told_of_sound, "{what}");
                    assert!(b.read(BASE, LEN) == sound.read(BASE, LEN), "{what}");
                }
            }
        }
    }
}

/// RFC 5044 section 8, error 3: an FPDU was placed where a Marker pointed to, and the FPDUs in order
/// lead elsewhere.
#[test]
fn a_marker_that_leads_elsewhere_than_the_order_ends_the_stream() {
    let terms = Negotiated {
        markers_in: Markers::On,
        ..negotiated(None)
    };
    let (_, mut b) = joined_with(&terms);
    // Before the initiator's first FPDU a responder sends nothing, and so no Terminate.
    b.receive(&marked(
        &tagged(Opcode::Write, STAG, SINK).to_bytes(),
        &[1; 8],
        0,
    ));
    b.with_ctx(|qp, ctx| qp.marker_mismatch(ctx));
    assert_eq!(b.counters.marker_errors, 1);
    let control = TerminateError::from(MpaError::MarkerMismatch).control();
    assert_eq!(early::told(&mut b), control);
}
