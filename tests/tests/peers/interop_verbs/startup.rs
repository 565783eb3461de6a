//! The MPA start-up with what the verbs leave open: IRD and ORD (RFC 6581), private data, rejects.

use std::thread;

use rnic::{ConnectOptions, Error, ListenOptions, MpaOptions, RemoteMemory, WorkRequest, WrOpcode};
use rnic_tests::cases::Cases;
use rnic_tests::lab::Family;
use rnic_tests::peer::verbs::{Said, hex};
use rnic_tests::verbs::LIMIT;

use super::stand::{Initiator, Joined, Stand};

const MEMORY: usize = 1 << 12;
const DEPTHS: [u8; 4] = [0, 1, 4, 128];
/// More than the smaller depths, so that some Reads have to wait.
const READS: u64 = 6;
const READ: usize = 64;

/// Of the 256 bytes that siw takes, IRD and ORD are 4.
const LONGEST: usize = 252;
/// What the kernel above siw tells its applications: the length has 8 bits.
const LONGEST_TOLD: usize = 255;
/// siw's own, where it would have 252 with its reply, end in the same way as a reply that is too
/// long for it.
const LONGEST_OF_SIW: usize = 200;
const PRIVATE: [usize; 4] = [0, 1, 100, LONGEST];

pub fn run(stand: &Stand, cases: &mut Cases) {
    for initiator in Initiator::BOTH {
        for ird in DEPTHS {
            for ord in DEPTHS {
                let title = format!("IRD {ird}, ORD {ord} of both, {initiator:?} connecting");
                cases.run(title, || depths(stand, initiator, ird, ord));
            }
        }
        for bytes in PRIVATE {
            let title = format!("{bytes} bytes of private data, {initiator:?} connecting");
            cases.run(title, || private_data(stand, initiator, bytes));
        }
    }
    for bytes in [0, 1, LONGEST_TOLD, LONGEST_TOLD + 1] {
        let title = format!("{bytes} bytes of private data with revision 1, Us connecting");
        cases.run(title, || private_data_alone(stand, bytes));
    }
    for (revision, bytes) in [(2, LONGEST + 1), (2, 256), (2, 508), (1, 257), (1, 512)] {
        let title = format!("{bytes} bytes of private data with revision {revision}: siw resets");
        cases.run(title, || {
            more_private_data_than_siw_takes(stand, revision, bytes);
        });
    }
    for bytes in [0, 1, 100, LONGEST_OF_SIW] {
        cases.run(format!("siw rejects with {bytes} bytes"), || {
            siw_rejects(stand, bytes);
        });
        cases.run(format!("we reject with {bytes} bytes"), || {
            we_reject(stand, bytes);
        });
    }
    cases.run("siw holds nothing after start-ups", || {
        stand.assert_nothing_left()
    });
}

fn said(ird: u8, ord: u8) -> Said {
    Said {
        ird,
        ord,
        private_data: Vec::new(),
    }
}

/// Both ends say the same, so each end's ORD meets an IRD that is smaller, equal and larger.
fn depths(stand: &Stand, initiator: Initiator, ird: u8, ord: u8) {
    let mpa = MpaOptions {
        ird: ird.into(),
        ord: ord.into(),
        ..MpaOptions::default()
    };
    let mut joined = Joined::new(stand, MEMORY);
    let agreed = joined.connect(stand, initiator, mpa, &[], &said(ird, ord));
    let agreed = agreed.expect("a connection").ours;
    let peer = agreed.peer.expect("revision 2 tells them");
    assert!(agreed.mpa.ord <= u16::from(ord) && agreed.mpa.ord <= peer.ird);
    joined.greet(initiator);
    if agreed.mpa.ord > 0 {
        for id in 0..READS {
            let bytes = [joined.ours.element(0..READ)];
            joined
                .ours
                .post(WorkRequest::read(id, &bytes, joined.their_source));
        }
        for _ in 0..READS {
            let _ = joined.success(WrOpcode::Read);
        }
    }
    if ord > 0 && agreed.mpa.ird > 0 {
        let RemoteMemory { stag, addr, .. } = joined.ours.remote();
        for id in 0..READS {
            let order = format!("read 0 {id} 0 0 {READ} {stag} {addr}");
            joined.theirs.order(&order);
        }
        for id in 0..READS {
            let done = joined.theirs.done(0);
            assert_eq!((done.id, done.status.as_str()), (id, "success"));
        }
    }
    joined.part();
}

/// Bytes of which no two near each other are alike.
fn bytes(first: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| first.wrapping_add(at as u8)).collect()
}

fn private_data(stand: &Stand, initiator: Initiator, count: usize) {
    let (of_us, of_siw) = (bytes(7, count), bytes(99, count.min(LONGEST_OF_SIW)));
    let siw = Said {
        private_data: of_siw.clone(),
        ..said(4, 4)
    };
    let mut joined = Joined::new(stand, MEMORY);
    let agreed = joined
        .connect(stand, initiator, MpaOptions::default(), &of_us, &siw)
        .expect("a connection");
    let (told_us, told_siw) = match initiator {
        Initiator::Us => (agreed.ours.private_data, agreed.theirs.private_data),
        Initiator::Siw => (agreed.asked, agreed.theirs.private_data),
    };
    assert_eq!((told_us, told_siw), (of_siw, of_us));
    joined.greet(initiator);
    joined.part();
}

fn of_revision(revision: u8) -> MpaOptions {
    MpaOptions {
        revision,
        ..MpaOptions::default()
    }
}

/// Without IRD and ORD there is room for 256 bytes; siw takes them, but its applications are told
/// of none then.
fn private_data_alone(stand: &Stand, count: usize) {
    let of_us = bytes(7, count);
    let mut joined = Joined::new(stand, MEMORY);
    let mpa = of_revision(1);
    let agreed = joined
        .connect(stand, Initiator::Us, mpa, &of_us, &said(4, 4))
        .expect("a connection");
    let told = if count > LONGEST_TOLD {
        &[]
    } else {
        &of_us[..]
    };
    assert_eq!(agreed.theirs.private_data, told);
    joined.greet(Initiator::Us);
    joined.part();
}

/// As initiator. A reply that is too long would take more than this connection with it: siw's
/// connection manager does nothing any more.
fn more_private_data_than_siw_takes(stand: &Stand, revision: u8, count: usize) {
    let mut joined = Joined::new(stand, MEMORY);
    let port = stand.port();
    let at = stand.interop.peer.address(Family::V4, port);
    joined.theirs.order(&format!("listen {} {port}", at.ip()));
    let options = ConnectOptions::default()
        .private_data(bytes(1, count))
        .mpa(of_revision(revision));
    let refused = joined.ours.qp.connect(at, options).wait(LIMIT);
    let refused = refused.expect_err("siw takes no more than 256 bytes");
    assert!(matches!(refused, Error::ConnectFailed { .. }), "{refused}");
    drop(joined);
    let mpa = MpaOptions::default();
    stand.join(Initiator::Us, mpa, MEMORY).part();
}

fn siw_rejects(stand: &Stand, count: usize) {
    let joined = Joined::new(stand, MEMORY);
    let mut theirs = joined.theirs;
    let port = stand.port();
    let at = stand.interop.peer.address(Family::V4, port);
    theirs.order(&format!("listen {} {port}", at.ip()));
    let word = bytes(50, count);
    let answer = thread::scope(|scope| {
        let options = ConnectOptions::default();
        let connecting = scope.spawn(|| joined.ours.qp.connect(at, options).wait(LIMIT));
        theirs.order("request 0");
        theirs.order(&format!("reject 0 {}", hex(&word)));
        connecting.join().expect("no panic")
    });
    let Err(Error::Rejected { private_data, .. }) = answer else {
        panic!("not rejected: {answer:?}");
    };
    assert_eq!(private_data, word);
}

fn we_reject(stand: &Stand, count: usize) {
    let Joined {
        ours, mut theirs, ..
    } = Joined::new(stand, MEMORY);
    let at = stand.interop.host.address(Family::V4, stand.port());
    let listener = ours
        .context
        .listen(at, ListenOptions::default().backlog(4))
        .expect("a free port");
    theirs.resolve(0, at);
    let order = "connect 0 4 4 -";
    theirs.begin(order);
    let request = listener.accept().wait(LIMIT).expect("a request");
    let word = bytes(70, count);
    request.reject(&word).expect("a request that waits");
    let answer = theirs.end(order).expect_err("a rejection");
    let said = format!("said {}", hex(&word));
    assert!(answer.starts_with("RDMA_CM_EVENT_REJECTED"), "{answer}");
    assert!(answer.ends_with(&said), "{answer} and not {said}");
}
