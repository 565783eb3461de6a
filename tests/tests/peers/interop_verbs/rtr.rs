//! Ready-to-Receive indications (RFC 6581 section 9.2), with which a responder may send first: siw
//! knows the Write and the Read, as initiator if it is told to ask for one at all.

use std::thread;

use rnic::{ConnectOptions, DisconnectReason, Error, MpaOptions, RtrModes};
use rnic_tests::cases::Cases;
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Wiring};
use rnic_tests::peer::PeerOptions;
use rnic_tests::peer::verbs::Said;
use rnic_tests::verbs::LIMIT;

use super::stand::{Initiator, Joined, READS, Stand};

const MEMORY: usize = 1 << 12;
/// No matching indication: layer 2, type 0, code 7.
const NO_MATCH: u16 = 0x2007;

const WRITE: RtrModes = RtrModes {
    write: true,
    ..RtrModes::NONE
};
const READ: RtrModes = RtrModes {
    read: true,
    ..RtrModes::NONE
};
const SEND: RtrModes = RtrModes {
    send: true,
    ..RtrModes::NONE
};

/// A siw whose constants can be changed.
pub fn peer_to_peer() -> Interop {
    let native = DaemonOptions {
        mode: Some("native"),
        ..DaemonOptions::default()
    };
    let siw = PeerOptions {
        siw: "siw_tunable,peer_to_peer=1".into(),
        ..PeerOptions::default()
    };
    Interop::with("rtr", Wiring::Bridged, &native, &siw)
}

pub fn run(stand: &Stand, cases: &mut Cases) {
    for (offered, agreed) in [
        (RtrModes::ALL, WRITE),
        (WRITE, WRITE),
        (READ, READ),
        // The client-server model.
        (RtrModes::NONE, RtrModes::NONE),
    ] {
        let title = format!("we connect and offer {}", show(offered));
        cases.run(title, || we_connect(stand, offered, agreed));
    }
    for (knows, taken, agreed) in [
        (Knows::Both, RtrModes::ALL, WRITE),
        (Knows::Write, RtrModes::ALL, WRITE),
        (Knows::Read, RtrModes::ALL, READ),
        (Knows::Both, READ, READ),
    ] {
        let taken_shown = show(taken);
        let title = format!("siw connects and offers {knows:?}, we take {taken_shown}");
        cases.run(title, || siw_connects(stand, knows, taken, agreed));
    }
    cases.run("nothing stays behind", || stand.assert_nothing_left());
    // Behind it siw's connection manager does nothing any more.
    cases.run("we connect and offer Send, which siw does not take", || {
        siw_does_not_take_a_send(stand);
    });
}

fn show(modes: RtrModes) -> String {
    let RtrModes { write, read, send } = modes;
    let all = [(write, "Write"), (read, "Read"), (send, "Send")];
    let set: Vec<_> = all.iter().filter(|of| of.0).map(|of| of.1).collect();
    match set[..] {
        [] => "none".into(),
        _ => set.join(", "),
    }
}

/// What siw says as initiator that it can send.
#[derive(Clone, Copy, Debug)]
enum Knows {
    Both,
    Write,
    Read,
}

impl Knows {
    /// Control flags C and D as they lie in the memory of a little-endian machine.
    fn set(self, stand: &Stand) {
        let value = match self {
            Self::Both => 0x80 | 0x40,
            Self::Write => 0x80,
            Self::Read => 0x40,
        };
        let parameter = "/sys/module/siw_tunable/parameters/rtr_type";
        let order = format!("echo {value} >{parameter}");
        let _ = stand.interop.peer.run(&order).success();
    }
}

fn asks_for(rtr: RtrModes) -> MpaOptions {
    MpaOptions {
        rtr,
        ..MpaOptions::default()
    }
}

fn said() -> Said {
    Said {
        ird: READS,
        ord: READS,
        private_data: Vec::new(),
    }
}

fn we_connect(stand: &Stand, offered: RtrModes, agreed: RtrModes) {
    let mut joined = Joined::new(stand, MEMORY);
    let found = joined
        .connect(stand, Initiator::Us, asks_for(offered), &[], &said())
        .expect("a connection");
    assert_eq!(found.ours.mpa.rtr, agreed);
    // With an indication the responder may begin, else it has to wait.
    joined.greet(match agreed {
        RtrModes::NONE => Initiator::Us,
        _ => Initiator::Siw,
    });
    joined.part();
}

/// It names the Write to who offers nothing that it knows, so we say that there is no match.
fn siw_does_not_take_a_send(stand: &Stand) {
    let Joined {
        ours, mut theirs, ..
    } = Joined::new(stand, MEMORY);
    let port = stand.port();
    let at = stand.interop.peer.address(Family::V4, port);
    theirs.order(&format!("listen {} {port}", at.ip()));
    let refused = thread::scope(|scope| {
        let options = ConnectOptions::default().mpa(asks_for(SEND));
        let connecting = scope.spawn(|| ours.qp.connect(at, options).wait(LIMIT));
        let _ = theirs.request(0);
        // Its answer does not come.
        theirs.begin(&format!("accept 0 {}", said().show()));
        connecting.join().expect("no panic")
    });
    let Err(Error::ConnectFailed { reason, .. }) = refused else {
        panic!("not refused: {refused:?}");
    };
    let control = NO_MATCH;
    assert_eq!(reason, DisconnectReason::TerminateSent { control });
    drop(ours);
    stand.assert_we_hold_nothing();
}

fn siw_connects(stand: &Stand, knows: Knows, taken: RtrModes, agreed: RtrModes) {
    knows.set(stand);
    let mut joined = Joined::new(stand, MEMORY);
    let found = joined
        .connect(stand, Initiator::Siw, asks_for(taken), &[], &said())
        .expect("a connection");
    assert_eq!(found.ours.mpa.rtr, agreed);
    joined.greet(Initiator::Us);
    joined.part();
}
