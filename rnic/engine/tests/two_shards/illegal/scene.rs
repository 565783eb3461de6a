//! The scene: a hostile peer and an innocent one, each with a stream to the side under test.

use std::time::Duration;

use rnic_ipc::control::{Access, DisconnectReason, MarkerUse, MpaOptions, QpState};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;
use userspace_tcp::Event as TcpEvent;

use super::cases::*;
use crate::raw::{Duel, fpdu, request, write_fpdu};
use crate::side::{BASE, MEMORY, PD, SideConfig, pattern};

/// Where the innocent peer writes, how much, and where its Send goes.
const WRITTEN: (usize, usize) = (0x10_0000, 20_000);
const DELIVERED: (usize, usize) = (0x18_0000, 100);
const INNOCENT_RECEIVE: u64 = 900;
pub const OWN_READ: u64 = 901;

/// Two peers with a stream each.
pub struct Scene {
    pub duel: Duel,
    pub hostile: QpNum,
    innocent: QpNum,
    /// What the innocent peer still has to send.
    rest: Vec<u8>,
    innocent_heard: usize,
}

impl Scene {
    /// Both in RDMA mode; the innocent one is in the middle of an FPDU.
    pub fn new(markers: bool) -> Self {
        let config = SideConfig {
            frames: 600,
            ..SideConfig::default()
        };
        let mut duel = Duel::new(config);
        let grants = [
            (BARE, PD, Access::LOCAL_WRITE),
            (FOREIGN, PdId(PD.0 + 1), Access::ALL),
            (NARROW, PD, Access::ALL),
        ];
        for ((stag, pd, access), place) in grants.into_iter().zip(PLACES) {
            duel.side.register(Stag(stag), pd, access, place, SMALL);
        }
        duel.side.listen(4, duel.now);
        duel.connect_innocent();
        duel.send_innocent(&request(0, b""));
        let innocent = accept(&mut duel, false, INNOCENT_RECEIVE, DELIVERED);
        duel.connect();
        duel.send(&request(0, b""), 1448);
        let hostile = accept(&mut duel, markers, 1, RECEIVE);
        let stag = duel.side.stag.0;
        let data = pattern(WRITTEN.1, 7);
        let mut rest: Vec<u8> = data
            .chunks(1000)
            .enumerate()
            .flat_map(|(index, part)| {
                write_fpdu(stag, BASE + (WRITTEN.0 + 1000 * index) as u64, part)
            })
            .collect();
        rest.extend(fpdu(&untagged(
            UNTAGGED | LAST,
            SEND,
            [0, 1, 0],
            &data[..DELIVERED.1],
        )));
        let behind = rest.split_off(10_300);
        duel.send_innocent(&rest);
        let innocent_heard = duel.innocent.received.len();
        Self {
            duel,
            hostile,
            innocent,
            rest: behind,
            innocent_heard,
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.duel.send(bytes, 1448);
    }

    /// The first FPDU, which allows the side to speak.
    pub fn open(&mut self) {
        let stag = self.duel.side.stag.0;
        self.send(&write_fpdu(stag, BASE, &[]));
    }

    /// Lets the side read from the hostile peer, when that is what the case is about.
    pub fn read_if(&mut self, case: &Case) {
        let ((sink, len), remote, hostile) = (SINK, (Stag(9), 0), self.hostile);
        if case.reads {
            let side = &mut self.duel.side;
            side.post_work(hostile, WrOpcode::Read, OWN_READ, sink, remote, len);
            self.duel.pump();
        }
    }

    /// What the hostile peer hears from now on.
    pub fn heard(&self) -> usize {
        self.duel.peer.received.len()
    }

    pub fn has_event(&self, event: &TcpEvent) -> bool {
        self.duel.peer.events.contains(event)
    }

    /// The hostile peer's stream has ended for this reason, and nothing more of it is placed.
    pub fn assert_ended(&mut self, reason: DisconnectReason, name: &str) {
        let stag = self.duel.side.stag.0;
        self.send(&write_fpdu(stag, BASE, &[0xee; 50]));
        if let Some(conn) = self.duel.peer.conn {
            self.duel.peer.stack.close(conn);
        }
        self.duel.run_for(Duration::from_secs(1));
        let side = &mut self.duel.side;
        assert_eq!(side.disconnected(self.hostile), Some(reason), "{name}");
        assert_eq!(side.state(self.hostile), QpState::Error, "{name}");
    }

    /// The innocent peer does the rest of what it wanted, and reads back.
    pub fn assert_innocent_unharmed(&mut self, name: &str) {
        let (duel, data) = (&mut self.duel, pattern(WRITTEN.1, 7));
        assert_eq!(duel.side.disconnected(self.innocent), None, "{name}");
        duel.send_innocent(&std::mem::take(&mut self.rest));
        let stag = duel.side.stag.0;
        let source = (stag, BASE + WRITTEN.0 as u64);
        let read = read_header((0x77, 0x1234), 300, source);
        duel.send_innocent(&fpdu(&untagged(
            UNTAGGED | LAST,
            READ_REQUEST,
            [1, 1, 0],
            &read,
        )));
        let answer = fpdu(&tagged(
            TAGGED | LAST,
            READ_RESPONSE,
            0x77,
            0x1234,
            &data[..300],
        ));
        assert!(
            duel.innocent.received[self.innocent_heard..] == answer,
            "{name}"
        );
        let received = duel.side.completion(INNOCENT_RECEIVE).expect(name);
        assert_eq!(received.status, WcStatus::Success as u8, "{name}");
        assert_eq!(duel.side.state(self.innocent), QpState::Rts, "{name}");
        // All of the memory: what the innocent peer sent, and in what the hostile one was given for
        // its own anything.
        let mut found = duel.side.read(0, MEMORY);
        let mut expected = vec![0; MEMORY];
        expected[WRITTEN.0..][..WRITTEN.1].copy_from_slice(&data);
        expected[DELIVERED.0..][..DELIVERED.1].copy_from_slice(&data[..DELIVERED.1]);
        for (at, len) in [RECEIVE, SINK] {
            found[at..at + len].fill(0);
        }
        assert!(
            found == expected,
            "{name}: memory that was not given has changed"
        );
        // The answer is acknowledged by then.
        duel.run_for(Duration::from_secs(1));
        let levels = duel.side.shard.levels();
        assert_eq!(levels.frames_free, duel.side.frames, "{name}: {levels:?}");
    }
}

/// Accepts the request that waits, with a receive posted.
fn accept(duel: &mut Duel, markers: bool, wr_id: u64, receive: (usize, usize)) -> QpNum {
    let qp = duel.side.create_qp();
    duel.side.post_recv(qp, wr_id, receive.0, receive.1);
    duel.accept(qp, |asked| MpaOptions {
        markers: MarkerUse::of_flag(markers),
        ird: IRD,
        ord: 4,
        ..asked
    });
    qp
}

/// The FPDU with the Terminate.
pub fn terminate(control: u16, shown: Shown, fault: &[u8]) -> Vec<u8> {
    fpdu(&terminate_message(control, shown, fault))
}

/// The Terminate, as RFC 5040 section 4.8 has it.
pub fn terminate_message(control: u16, shown: Shown, fault: &[u8]) -> Vec<u8> {
    let flags = match shown {
        Shown::Nothing => 0,
        Shown::Header => 0xc0,
        Shown::HeaderAndRead => 0xe0,
    };
    let mut payload = control.to_be_bytes().to_vec();
    payload.extend([flags, 0]);
    if shown != Shown::Nothing {
        let header = if fault[0] & 0x80 != 0 { 14 } else { 18 };
        payload.extend((fault.len() as u16).to_be_bytes());
        payload.extend(&fault[..header]);
        if shown == Shown::HeaderAndRead {
            payload.extend(&fault[header..header + 28]);
        }
    }
    untagged(UNTAGGED | LAST, TERMINATE, [2, 1, 0], &payload)
}
