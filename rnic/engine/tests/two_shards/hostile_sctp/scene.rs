//! The scene: a hostile peer and an innocent one, each with a session to the side under test.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{Access, DisconnectReason, MpaOptions, QpState, RtrModes};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::work::WcStatus;
use rnic_proto::Stag;

use crate::illegal::cases::*;
use crate::sctp_peer::{CONTROL, SEGMENT, TERMINATE as END, control, segment};
use crate::sctp_raw::{HOSTILE, OTHER, SctpDuel};
use crate::side::{BASE, MEMORY, PD, SideConfig, pattern};

/// Where the innocent peer writes, how much, in parts of how many bytes, and where its Send goes.
const WRITTEN: (usize, usize) = (0x10_0000, 20_000);
const PART: usize = 1000;
const DELIVERED: (usize, usize) = (0x18_0000, 100);
const INNOCENT_RECEIVE: u64 = 900;
pub const OWN_READ: u64 = 901;
/// What the hostile peer's queue pair has posted for a Send.
pub const OWN_RECEIVE: u64 = 1;

pub struct Scene {
    pub duel: SctpDuel,
    pub hostile: QpNum,
    innocent: QpNum,
    /// The next DDP-SSN of each peer.
    ssn: [u16; 2],
    /// Parts that the innocent peer has written.
    written: usize,
}

impl Scene {
    /// Both have a session; the innocent one is in the middle of what it wants to write.
    pub fn new() -> Self {
        let config = SideConfig {
            frames: 600,
            ..SideConfig::default()
        };
        Self::with(config)
    }

    pub fn with(config: SideConfig) -> Self {
        let mut scene = Self::before_the_session(config);
        scene.hostile = scene.duel.open(HOSTILE);
        scene.ssn[HOSTILE] = 1;
        let (hostile, (at, len)) = (scene.hostile, RECEIVE);
        scene.duel.side.post_recv(hostile, OWN_RECEIVE, at, len);
        scene
    }

    /// The hostile peer has nothing yet.
    pub fn before_the_session(config: SideConfig) -> Self {
        let mut duel = SctpDuel::new(config);
        let grants = [
            (BARE, PD, Access::LOCAL_WRITE),
            (FOREIGN, PdId(PD.0 + 1), Access::ALL),
            (NARROW, PD, Access::ALL),
        ];
        for ((stag, pd, access), place) in grants.into_iter().zip(PLACES) {
            duel.side.register(Stag(stag), pd, access, place, SMALL);
        }
        let innocent = duel.open(OTHER);
        let (at, len) = DELIVERED;
        duel.side.post_recv(innocent, INNOCENT_RECEIVE, at, len);
        let mut scene = Self {
            duel,
            hostile: innocent,
            innocent,
            ssn: [0, 1],
            written: 0,
        };
        scene.write_up_to(WRITTEN.1 / PART / 2);
        scene
    }

    /// The side asks the hostile peer for a session, and offers all indications.
    pub fn ask(&mut self) -> QpNum {
        let SctpDuel { side, peers, now } = &mut self.duel;
        let qp = side.create_qp();
        let (remote, path) = (peers[HOSTILE].address(), peers[HOSTILE].way_to_it());
        let mpa = MpaOptions {
            rtr: RtrModes::ALL,
            ..MpaOptions::default()
        };
        side.connect(qp, 7000, remote, path, mpa, b"", *now)
            .unwrap();
        peers[HOSTILE].listen_for(side.address.ip(), 7000);
        self.duel.pump();
        qp
    }

    /// The next segment of a peer's session.
    pub fn send(&mut self, who: usize, bytes: &[u8]) {
        self.duel.send_segment(who, self.ssn[who], bytes);
        self.ssn[who] += 1;
    }

    /// The user data of the hostile peer's next segment.
    pub fn next_segment(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.ssn[HOSTILE] += 1;
        segment(self.ssn[HOSTILE] - 1, bytes)
    }

    /// A Write of the hostile peer to where all may write.
    pub fn write(&self, at: usize, payload: &[u8]) -> Vec<u8> {
        let (stag, to) = (self.duel.side.stag.0, BASE + at as u64);
        tagged(TAGGED | LAST, WRITE, stag, to, payload)
    }

    /// The hostile peer ends its half of the session.
    pub fn end_session(&mut self) {
        let ssn = self.ssn[HOSTILE];
        self.duel.send(HOSTILE, CONTROL, &control(ssn, END, b""));
        self.ssn[HOSTILE] += 1;
    }

    fn write_up_to(&mut self, parts: usize) {
        let data = pattern(WRITTEN.1, 7);
        for (index, part) in data.chunks(PART).enumerate().take(parts).skip(self.written) {
            let write = self.write(WRITTEN.0 + PART * index, part);
            self.send(OTHER, &write);
        }
        self.written = parts;
    }

    /// The hostile peer's session has ended for this reason.
    pub fn assert_ended(&mut self, reason: DisconnectReason, name: &str) {
        let side = &mut self.duel.side;
        assert_eq!(side.disconnected(self.hostile), Some(reason), "{name}");
        assert_eq!(side.state(self.hostile), QpState::Error, "{name}");
    }

    /// The innocent peer does the rest of what it wanted, and reads back. Of the hostile one nothing is left, and its
    /// queue pair serves again. `open`: places of the memory that the hostile one may have changed.
    pub fn assert_innocent_unharmed(&mut self, name: &str, open: &[(usize, usize)]) {
        self.write_up_to(WRITTEN.1 / PART);
        let data = pattern(WRITTEN.1, 7);
        let send = untagged(UNTAGGED | LAST, SEND, [0, 1, 0], &data[..DELIVERED.1]);
        self.send(OTHER, &send);
        let source = (self.duel.side.stag.0, BASE + WRITTEN.0 as u64);
        let read = read_header((0x77, 0x1234), 300, source);
        let read = untagged(UNTAGGED | LAST, READ_REQUEST, [1, 1, 0], &read);
        self.send(OTHER, &read);
        let answer = tagged(TAGGED | LAST, READ_RESPONSE, 0x77, 0x1234, &data[..300]);
        let duel = &mut self.duel;
        assert_eq!(duel.side.disconnected(self.innocent), None, "{name}");
        let expected = (SEGMENT, segment(1, &answer));
        assert_eq!(duel.peers[OTHER].data, [expected], "{name}");
        let received = duel.side.completion(INNOCENT_RECEIVE).expect(name);
        assert_eq!(received.status, WcStatus::Success as u8, "{name}");
        assert_eq!(duel.side.state(self.innocent), QpState::Rts, "{name}");
        let mut found = duel.side.read(0, MEMORY);
        let mut expected = vec![0; MEMORY];
        expected[WRITTEN.0..][..WRITTEN.1].copy_from_slice(&data);
        expected[DELIVERED.0..][..DELIVERED.1].copy_from_slice(&data[..DELIVERED.1]);
        for (at, len) in open {
            found[*at..at + len].fill(0);
        }
        assert!(
            found == expected,
            "{name}: memory that was not given has changed"
        );
        self.assert_nothing_left(name);
    }

    /// Only the innocent peer's session is there, and the hostile one's queue pair serves another.
    fn assert_nothing_left(&mut self, name: &str) {
        let duel = &mut self.duel;
        // What was sent is acknowledged by then.
        duel.run_for(Duration::from_secs(1));
        let levels = duel.side.shard.levels();
        assert_eq!(levels.connections, 1, "{name}: {levels:?}");
        assert_eq!(levels.associations, 1, "{name}: {levels:?}");
        assert_eq!(levels.frames_free, duel.side.frames, "{name}: {levels:?}");
        if self.hostile == self.innocent {
            return;
        }
        let (qp, state) = (self.hostile, QpState::Idle);
        let command = Command::ModifyQp { qp, state };
        duel.side.shard.execute(command, duel.now).expect(name);
        let peer = &mut duel.peers[HOSTILE];
        peer.restart(peer.tag + 1);
        peer.move_to(6000);
        (peer.answers, peer.window) = (true, 100_000);
        duel.initiate(HOSTILE);
        duel.accept(HOSTILE, qp);
        assert_eq!(duel.side.state(qp), QpState::Rts, "{name}");
    }
}
