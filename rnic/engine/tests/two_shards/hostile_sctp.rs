//! A hostile peer over SCTP beside an innocent one on the same shard. Whatever it does has a named end, nothing of it is
//! left, its queue pair serves again, and the innocent peer's transfer goes on undisturbed.

mod association;
mod floods;
mod scene;
mod session;
mod streams;

use rnic_ipc::control::DisconnectReason;
use rnic_ipc::work::WrOpcode;
use rnic_proto::Stag;

use self::scene::{OWN_READ, Scene};
use crate::illegal::cases::*;
use crate::illegal::scene::terminate_message;
use crate::sctp_peer::{CONTROL, SEGMENT, TERMINATE as END, control, segment};
use crate::sctp_raw::HOSTILE;

/// More than a chunk takes in a packet of 1500 bytes.
const ULPDU_MAX: usize = 1400;

/// The same table as over TCP, but for what is the CRC's. The Terminate is byte by byte the same; the session's own
/// follows it.
#[test]
fn each_illegal_segment_gets_its_terminate_and_the_other_session_goes_on() {
    let all = |scene: &Scene| {
        let mut all = cases(&scene.duel.side);
        all.retain(|case| !case.damaged && case.fault.len() <= ULPDU_MAX);
        all
    };
    let count = all(&Scene::new()).len();
    assert!(count > 100, "{count}");
    for index in 0..count {
        let mut scene = Scene::new();
        let case = all(&scene).swap_remove(index);
        let name = case.name;
        if case.reads {
            let ((sink, len), hostile) = (SINK, scene.hostile);
            let side = &mut scene.duel.side;
            side.post_work(hostile, WrOpcode::Read, OWN_READ, sink, (Stag(9), 0), len);
            scene.duel.pump();
        }
        let before = scene.duel.peers[HOSTILE].data.len() as u16;
        // All in one packet. A second thing that is wrong is behind: only the first is told (RFC 5040 section 7.1).
        let behind = untagged(UNTAGGED | LAST, SEND, [9, 1, 0], &[]);
        let ulpdus = case.before.iter().chain([&case.fault, &behind]);
        let messages: Vec<_> = ulpdus.map(|ulpdu| scene.next_segment(ulpdu)).collect();
        let chunks: Vec<_> = messages
            .iter()
            .map(|message| scene.duel.peers[HOSTILE].next_data(SEGMENT, message))
            .collect();
        scene.duel.send_chunks(HOSTILE, &chunks);
        let message = terminate_message(case.control, case.shown, &case.fault);
        let expected = [
            (SEGMENT, segment(1 + before, &message)),
            (CONTROL, control(2 + before, END, b"")),
        ];
        let found = &scene.duel.peers[HOSTILE].data[usize::from(before)..];
        assert!(
            found == expected,
            "{name}: {found:02x?} instead of {expected:02x?}"
        );
        scene.end_session();
        let control = case.control;
        scene.assert_ended(DisconnectReason::TerminateSent { control }, name);
        scene.assert_innocent_unharmed(name, &[RECEIVE, SINK]);
    }
}
