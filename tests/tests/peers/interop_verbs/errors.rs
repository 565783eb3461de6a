//! Either end at fault: the other finds it and says so in a Terminate that is understood, both end
//! with what was posted flushed, and the next connection works.

use std::collections::BTreeMap;

use rnic::{
    Access, DisconnectReason, MarkerUse, MpaOptions, QpState, RemoteMemory, RtrModes, WcStatus,
    WorkRequest,
};
use rnic_tests::cases::Cases;
use rnic_tests::peer::verbs::Said;
use rnic_tests::verbs::LIMIT;
use rnic_tests::wait;

use super::stand::{Initiator, Joined, Stand};

pub const MEMORY: usize = 1 << 16;
/// Bytes of the message that is at fault.
const SIZE: usize = 64;
const FAULT: u64 = 99;
/// Those of receives that wait at both ends, for Sends of up to 4 bytes.
const WAITING: [u64; 2] = [500, 501];

/// Something that one end does wrong.
struct Fault {
    name: &'static str,
    commit: fn(&mut Joined),
    /// Layer, type and code of the Terminate that the other end sends (RFC 5040 section 4.8).
    control: u16,
    /// How our work ends, where it is ours. siw's Reads are flushed, and its other work may have
    /// completed or not when the Terminate comes.
    status: WcStatus,
    /// Receives that it takes at the other end.
    takes: usize,
}

const fn fault(
    name: &'static str,
    control: u16,
    status: WcStatus,
    commit: fn(&mut Joined),
) -> Fault {
    Fault {
        name,
        commit,
        control,
        status,
        takes: 0,
    }
}

/// A Write or Send is complete when TCP has it.
const HANDED_OVER: WcStatus = WcStatus::Success;
const REFUSED: WcStatus = WcStatus::RemoteAccess;

const BY_US: [Fault; 9] = [
    fault("RDMA Write with a wrong key", 0x1100, HANDED_OVER, |j| {
        we_write(j, wrong_key(j.their_sink));
    }),
    fault(
        "RDMA Write to an STag of nothing",
        0x1100,
        HANDED_OVER,
        |j| {
            we_write(j, wrong_index(j.their_sink));
        },
    ),
    fault("RDMA Write out of bounds", 0x1101, HANDED_OVER, |j| {
        we_write(j, beyond(j.their_sink));
    }),
    fault("RDMA Write without the right", 0x1100, HANDED_OVER, |j| {
        let readable = j.theirs.memory(2, MEMORY, "lr");
        we_write(j, readable);
    }),
    fault("RDMA Read with a wrong key", 0x0100, REFUSED, |j| {
        we_read(j, wrong_key(j.their_source));
    }),
    fault("RDMA Read of an STag of nothing", 0x0100, REFUSED, |j| {
        we_read(j, wrong_index(j.their_source));
    }),
    fault("RDMA Read out of bounds", 0x0101, REFUSED, |j| {
        we_read(j, beyond(j.their_source));
    }),
    Fault {
        takes: 2,
        ..fault("Send without a receive", 0x1202, HANDED_OVER, |j| {
            for id in [1, 2, FAULT] {
                j.ours.post(WorkRequest::send(id, &[]));
            }
        })
    },
    // RFC 5041 has 0x1205 for it.
    Fault {
        takes: 1,
        ..fault("Send that is too long", 0x1202, HANDED_OVER, |j| {
            j.ours.post(WorkRequest::send(FAULT, &[j.from(0..SIZE)]));
        })
    },
];

const BY_SIW: [Fault; 10] = [
    fault("RDMA Write with a wrong key", 0x1100, HANDED_OVER, |j| {
        siw_does(j, "write", wrong_key(j.ours.remote()));
    }),
    fault(
        "RDMA Write to an STag of nothing",
        0x1100,
        HANDED_OVER,
        |j| {
            siw_does(j, "write", wrong_index(j.ours.remote()));
        },
    ),
    fault("RDMA Write out of bounds", 0x1101, HANDED_OVER, |j| {
        siw_does(j, "write", beyond(j.ours.remote()));
    }),
    fault("RDMA Write without the right", 0x0102, HANDED_OVER, |j| {
        let readable = j.limited(true, false);
        siw_does(j, "write", readable);
    }),
    fault("RDMA Read with a wrong key", 0x0100, REFUSED, |j| {
        siw_does(j, "read", wrong_key(j.ours.remote()));
    }),
    fault("RDMA Read of an STag of nothing", 0x0100, REFUSED, |j| {
        siw_does(j, "read", wrong_index(j.ours.remote()));
    }),
    fault("RDMA Read out of bounds", 0x0101, REFUSED, |j| {
        siw_does(j, "read", beyond(j.ours.remote()));
    }),
    fault("RDMA Read without the right", 0x0102, REFUSED, |j| {
        let writable = j.limited(false, true);
        siw_does(j, "read", writable);
    }),
    Fault {
        takes: 2,
        ..fault("Send without a receive", 0x1202, HANDED_OVER, |j| {
            for id in [1, 2, FAULT] {
                j.theirs.order(&format!("send 0 {id} 1 0 0"));
            }
        })
    },
    Fault {
        takes: 1,
        ..fault("Send that is too long", 0x1205, HANDED_OVER, |j| {
            j.theirs.order(&format!("send 0 {FAULT} 1 0 {SIZE}"));
        })
    },
];

fn wrong_key(memory: RemoteMemory) -> RemoteMemory {
    let stag = memory.stag ^ 0x55;
    RemoteMemory { stag, ..memory }
}

fn wrong_index(memory: RemoteMemory) -> RemoteMemory {
    let stag = memory.stag ^ 0x5555_5500;
    RemoteMemory { stag, ..memory }
}

/// The last byte is one too many.
fn beyond(memory: RemoteMemory) -> RemoteMemory {
    memory.offset((MEMORY - SIZE + 1) as u64)
}

fn we_write(joined: &mut Joined, to: RemoteMemory) {
    let bytes = [joined.from(0..SIZE)];
    joined.ours.post(WorkRequest::write(FAULT, &bytes, to));
}

fn we_read(joined: &mut Joined, from: RemoteMemory) {
    let bytes = [joined.ours.element(0..SIZE)];
    joined.ours.post(WorkRequest::read(FAULT, &bytes, from));
}

fn siw_does(joined: &mut Joined, verb: &str, remote: RemoteMemory) {
    let RemoteMemory { stag, addr, .. } = remote;
    let order = format!("{verb} 0 {FAULT} 1 0 {SIZE} {stag} {addr}");
    joined.theirs.order(&order);
}

pub fn run(stand: &Stand, cases: &mut Cases) {
    for (place, fault) in BY_US.iter().enumerate() {
        let initiator = Initiator::BOTH[place % 2];
        let title = format!("{} by us, {initiator:?} connecting", fault.name);
        cases.run(title, || {
            siw_finds(ready(stand, initiator), fault);
            assert_the_next_works(stand, initiator);
        });
    }
    for (place, fault) in BY_SIW.iter().enumerate() {
        let initiator = Initiator::BOTH[place % 2];
        let title = format!("{} by siw, {initiator:?} connecting", fault.name);
        cases.run(title, || {
            stand.forget_log();
            we_find(stand, ready(stand, initiator), fault);
            assert_the_next_works(stand, initiator);
        });
    }
    cases.run("Send that invalidates nothing by us", || {
        siw_hesitates(ready(stand, Initiator::Us));
        assert_the_next_works(stand, Initiator::Us);
    });
    cases.run("RDMA Reads beyond the IRD by us", || {
        we_read_beyond_ird(stand);
        assert_the_next_works(stand, Initiator::Us);
    });
    cases.run("RDMA Reads beyond the IRD by siw", || {
        siw_reads_beyond_ird(stand);
        assert_the_next_works(stand, Initiator::Us);
    });
    cases.run("siw holds nothing after errors", || {
        stand.assert_nothing_left()
    });
}

/// A connection, with receives posted at both ends.
fn ready(stand: &Stand, initiator: Initiator) -> Joined {
    let mut joined = stand.join(initiator, MpaOptions::default(), MEMORY);
    for id in WAITING {
        joined.ours.post_recv(id, 0..4);
        joined.theirs.order(&format!("receive 0 {id} 0 0 4"));
    }
    joined
}

fn assert_the_next_works(stand: &Stand, initiator: Initiator) {
    stand.assert_we_hold_nothing();
    stand.join(initiator, MpaOptions::default(), MEMORY).part();
}

fn siw_finds(mut joined: Joined, fault: &Fault) {
    (fault.commit)(&mut joined);
    let Fault { control, .. } = *fault;
    assert_eq!(
        joined.ours.ending(),
        DisconnectReason::TerminateReceived { control },
        "not control {control:#06x}"
    );
    joined.assert_ours_ended(Some(fault.status), 0);
    joined.assert_siw_ended(false, fault.takes);
}

fn we_find(stand: &Stand, mut joined: Joined, fault: &Fault) {
    (fault.commit)(&mut joined);
    let Fault { control, .. } = *fault;
    assert_eq!(
        joined.ours.ending(),
        DisconnectReason::TerminateSent { control },
        "not control {control:#06x}"
    );
    joined.assert_ours_ended(None, fault.takes);
    joined.assert_siw_ended(true, 0);
    assert_understood(stand, control);
}

/// siw reads layer and type the wrong way round on a little-endian machine, as it writes them.
fn assert_understood(stand: &Stand, control: u16) {
    let [nibbles, code] = control.to_be_bytes();
    let (layer, kind) = (nibbles & 0xf, nibbles >> 4);
    let said = format!("siw: got TERMINATE. layer {layer}, type {kind}, code {code}\n");
    // The end of the connection may be told before the kernel's log has it.
    wait::until(&format!("siw's log to end with {said:?}"), LIMIT, || {
        stand.log().ends_with(&said).then_some(())
    });
}

/// siw's receive fails, but its Terminate comes when the application ends the connection.
fn siw_hesitates(mut joined: Joined) {
    let stag = wrong_index(joined.their_sink).stag;
    let work = WorkRequest::send_with_invalidate(FAULT, &[], stag);
    joined.ours.post(work);
    let done = joined.theirs.done(0);
    let refused = "remote-invalid-request-error";
    assert_eq!((done.id, done.status.as_str()), (WAITING[0], refused));
    joined.theirs.order("disconnect 0");
    let control = 0x0209;
    let reason = DisconnectReason::TerminateReceived { control };
    assert_eq!(joined.ours.ending(), reason);
    joined.assert_ours_ended(Some(HANDED_OVER), 0);
}

/// Reads that are posted at once, more than either end's IRD.
const READS: u64 = 8;
/// Bytes of each, so that the first is not answered before the next ones come.
const LONG: usize = 8 << 20;
/// What the initiator of revision 1 asks for is told to nobody (RFC 6581 is why there is another).
const UNTOLD: MpaOptions = MpaOptions {
    revision: 1,
    crc: true,
    markers: MarkerUse::Off,
    aligned: false,
    rtr: RtrModes::NONE,
    ird: 1,
    ord: 16,
};

fn untold(stand: &Stand) -> Joined {
    stand.forget_log();
    let mut joined = Joined::new(stand, LONG);
    let siw = Said {
        ird: 1,
        ord: 16,
        private_data: Vec::new(),
    };
    let agreed = joined.connect(stand, Initiator::Us, UNTOLD, &[], &siw);
    assert_eq!(agreed.expect("a connection").ours.mpa.revision, 1);
    joined.greet(Initiator::Us);
    joined
}

fn we_read_beyond_ird(stand: &Stand) {
    let joined = untold(stand);
    let bytes = [joined.ours.element(0..LONG)];
    let reads: Vec<_> = (0..READS)
        .map(|id| WorkRequest::read(id, &bytes, joined.their_source))
        .collect();
    // At once: siw writes its Terminate without waiting, and not at all where its socket is full of what
    // answers the first.
    assert_eq!(joined.ours.post_all(&reads), reads.len());
    // RFC 5040 section 7.2 would have siw say 0x1202, on the Reads' queue.
    let control = 0x0207;
    let reason = DisconnectReason::TerminateReceived { control };
    assert_eq!(joined.ours.ending(), reason);
    assert!(stand.log().contains("IRQ exceeded"), "{}", stand.log());
    let done: Vec<_> = (0..READS).map(|_| joined.ours.completion()).collect();
    let refused = done
        .iter()
        .filter(|done| done.status == WcStatus::RemoteOperation);
    assert_eq!(refused.count(), 1, "{done:?}");
    let last = done.last().map(|done| done.status);
    assert_eq!(last, Some(WcStatus::WorkRequestFlushed));
}

fn siw_reads_beyond_ird(stand: &Stand) {
    let mut joined = untold(stand);
    let RemoteMemory { stag, addr, .. } = joined.ours.remote();
    for id in 0..READS {
        let order = format!("read 0 {id} 0 0 {LONG} {stag} {addr}");
        joined.theirs.order(&order);
    }
    let control = 0x1202;
    let reason = DisconnectReason::TerminateSent { control };
    assert_eq!(joined.ours.ending(), reason);
    assert_understood(stand, control);
    let state = joined.ours.qp.state().expect("the daemon serves");
    assert_eq!(state, QpState::Error);
    // siw flushes no more than some of them.
    assert_eq!(joined.theirs.order("event 0"), "RDMA_CM_EVENT_DISCONNECTED");
}

impl Joined {
    /// Memory of ours for which the peer has fewer rights.
    fn limited(&mut self, remote_read: bool, remote_write: bool) -> RemoteMemory {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ.when(remote_read)
            | Access::REMOTE_WRITE.when(remote_write);
        let region = self.ours.pd.register(MEMORY, access).expect("a region");
        let remote = region.remote(0..MEMORY).expect("all of it");
        self.spare.push(region);
        remote
    }

    /// Our end is in the state Error, our work at fault has that status, and of the receives that
    /// waited, those that were not taken are flushed.
    #[track_caller]
    fn assert_ours_ended(&self, fault: Option<WcStatus>, taken: usize) {
        let mut found = BTreeMap::new();
        while WAITING.iter().any(|id| !found.contains_key(id))
            || fault.is_some() && !found.contains_key(&FAULT)
        {
            let done = self.ours.completion();
            found.insert(done.wr_id, done.status);
        }
        assert_eq!(found.get(&FAULT).copied(), fault, "our work at fault");
        let flushed = WAITING.map(|id| found[&id] == WcStatus::WorkRequestFlushed);
        let expected = [0, 1].map(|place| place >= taken);
        assert_eq!(flushed, expected, "receives that were flushed: {found:?}");
        let state = self.ours.qp.state().expect("the daemon serves");
        assert_eq!(state, QpState::Error);
    }

    /// siw told its application, which ends the connection as it has to: then what was posted is
    /// flushed.
    #[track_caller]
    fn assert_siw_ended(&mut self, at_fault: bool, taken: usize) {
        assert_eq!(self.theirs.order("event 0"), "RDMA_CM_EVENT_DISCONNECTED");
        self.theirs.order("disconnect 0");
        let mut found = BTreeMap::new();
        while WAITING.iter().any(|id| !found.contains_key(id))
            || at_fault && !found.contains_key(&FAULT)
        {
            let done = self.theirs.done(0);
            found.insert(done.id, done.status);
        }
        let flushed = WAITING.map(|id| found[&id] == FLUSHED);
        let expected = [0, 1].map(|place| place >= taken);
        assert_eq!(flushed, expected, "siw's receives: {found:?}");
    }
}

/// siw's word for it.
const FLUSHED: &str = "Work-Request-Flushed-Error";
