//! An RNIC, a siw that obeys, connections between them, and that nothing stays behind.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use rnic::{
    AcceptOptions, ConnectOptions, Established, ListenOptions, MemoryRegion, MpaOptions,
    RemoteMemory, Sge, WcStatus, WorkCompletion, WorkRequest, WrOpcode,
};
use rnic_tests::interop::Interop;
use rnic_tests::lab::Family;
use rnic_tests::pattern::Pattern;
use rnic_tests::peer::Job;
use rnic_tests::peer::verbs::{Done, Said, Verbs};
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT};
use rnic_tests::wait;

const CONTROL: u16 = 7000;
/// Where connections of tests are listened for, from here on.
const PORTS: u16 = 20_000;
/// RDMA Reads at a time, each way, when a case does not care.
pub const READS: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    Us,
    Siw,
}

impl Initiator {
    pub const BOTH: [Self; 2] = [Self::Us, Self::Siw];
}

pub struct Stand {
    pub interop: Interop,
    _control: Job,
    ports: AtomicU16,
    held: BTreeMap<String, u64>,
    peer_holds: String,
}

impl Stand {
    pub fn new(name: &str) -> Self {
        Self::of(Interop::new(name))
    }

    pub fn of(interop: Interop) -> Self {
        let control = interop
            .peer
            .listen(CONTROL, &format!("siw-verbs control {CONTROL}"));
        let held = held(&interop);
        let peer_holds = peer_holds(&interop);
        Self {
            interop,
            _control: control,
            ports: AtomicU16::new(PORTS),
            held,
            peer_holds,
        }
    }

    /// A port that nobody used.
    pub fn port(&self) -> u16 {
        self.ports.fetch_add(1, Ordering::Relaxed)
    }

    /// A process at the peer that obeys.
    pub fn verbs(&self) -> Verbs {
        let at = self.interop.peer.address(Family::V4, CONTROL);
        Verbs::new(&self.interop.host.namespace, at)
    }

    /// A connection that works, with so many bytes of memory at each end.
    pub fn join(&self, initiator: Initiator, mpa: MpaOptions, bytes: usize) -> Joined {
        let said = Said {
            ird: READS,
            ord: READS,
            private_data: Vec::new(),
        };
        let mut joined = Joined::new(self, bytes);
        joined
            .connect(self, initiator, mpa, &[], &said)
            .expect("a connection");
        joined.greet(initiator);
        joined
    }

    /// Begins a new log of siw's warnings.
    pub fn forget_log(&self) {
        let _ = self.interop.peer.run("dmesg --clear").success();
    }

    pub fn log(&self) -> String {
        let log = self.interop.peer.run("dmesg --notime").success().stdout;
        let ours = log.lines().filter(|line| line.starts_with("siw: "));
        ours.map(|line| format!("{line}\n")).collect()
    }

    /// Panics unless the RNIC holds soon what it held before the first case.
    pub fn assert_we_hold_nothing(&self) {
        wait::until("the RNIC holds what it held", LIMIT, || {
            (held(&self.interop) == self.held).then_some(())
        });
    }

    /// Panics unless both ends hold soon what they held before the first case.
    pub fn assert_nothing_left(&self) {
        self.assert_we_hold_nothing();
        wait::until("siw holds what it held", LIMIT, || {
            (peer_holds(&self.interop) == self.peer_holds).then_some(())
        });
    }
}

fn held(interop: &Interop) -> BTreeMap<String, u64> {
    let mut counters = interop.daemon.counters();
    counters.retain(|name, _| name.starts_with("held_"));
    assert!(!counters.is_empty(), "no counter of what is held");
    counters
}

fn peer_holds(interop: &Interop) -> String {
    interop.peer.run("rdma resource").success().stdout
}

/// What both ends were told when they were connected.
#[derive(Debug)]
pub struct Agreed {
    pub ours: Established,
    /// Responder: what the initiator asked for. Initiator: the responder's answer.
    pub theirs: Said,
    /// The private data of the MPA request when siw connects.
    pub asked: Vec<u8>,
}

/// Both ends of a connection. Each has a source, memory 1 of the peer's, and a sink, memory 0.
pub struct Joined {
    pub ours: Endpoint,
    pub source: MemoryRegion,
    /// More memory of ours.
    pub spare: Vec<MemoryRegion>,
    pub theirs: Verbs,
    pub their_sink: RemoteMemory,
    pub their_source: RemoteMemory,
}

impl Joined {
    /// Two ends that are not connected.
    pub fn new(stand: &Stand, bytes: usize) -> Self {
        let ours = Endpoint::new(&stand.interop.daemon, bytes);
        let source = ours.pd.register(bytes, FULL_ACCESS).expect("a region");
        let mut theirs = stand.verbs();
        Self {
            their_sink: theirs.memory(0, bytes, "lrw"),
            their_source: theirs.memory(1, bytes, "lrw"),
            ours,
            source,
            spare: Vec::new(),
            theirs,
        }
    }

    /// Connects them: `said` is what siw says of itself.
    pub fn connect(
        &mut self,
        stand: &Stand,
        initiator: Initiator,
        mpa: MpaOptions,
        private_data: &[u8],
        said: &Said,
    ) -> Result<Agreed, String> {
        let private_data = private_data.to_vec();
        let port = stand.port();
        match initiator {
            Initiator::Us => {
                let at = stand.interop.peer.address(Family::V4, port);
                self.theirs.order(&format!("listen {} {port}", at.ip()));
                let options = ConnectOptions::default()
                    .private_data(private_data)
                    .mpa(mpa);
                thread::scope(|scope| {
                    let qp = &self.ours.qp;
                    let connected = scope.spawn(|| qp.connect(at, options).wait(LIMIT));
                    let theirs = self.theirs.request(0);
                    let accepted = self.theirs.attempt(&format!("accept 0 {}", said.show()));
                    let ours = connected.join().expect("no panic");
                    accepted?;
                    Ok(Agreed {
                        ours: ours.map_err(|error| error.to_string())?,
                        theirs,
                        asked: Vec::new(),
                    })
                })
            }
            Initiator::Siw => {
                let at = stand.interop.host.address(Family::V4, port);
                let listener = self
                    .ours
                    .context
                    .listen(at, ListenOptions::default().backlog(4))
                    .expect("a free port");
                self.theirs.resolve(0, at);
                let order = format!("connect 0 {}", said.show());
                self.theirs.begin(&order);
                let request = listener.accept().wait(LIMIT).expect("a request");
                let asked = request.private_data().to_vec();
                let options = AcceptOptions::default().private_data(private_data).mpa(mpa);
                let ours = request.accept(&self.ours.qp, options).wait(LIMIT);
                let theirs = self.theirs.end(&order)?;
                Ok(Agreed {
                    ours: ours.map_err(|error| error.to_string())?,
                    theirs: Said::parse(&theirs),
                    asked,
                })
            }
        }
    }

    /// A Send each way, the initiator's first: a responder may not begin.
    pub fn greet(&mut self, initiator: Initiator) {
        let order = match initiator {
            Initiator::Us => [true, false],
            Initiator::Siw => [false, true],
        };
        for ours in order {
            if ours {
                self.theirs.order("receive 0 1000 0 0 4");
                self.ours.post(WorkRequest::send(1000, &[self.from(0..4)]));
                assert_eq!(self.theirs.done(0), Done::success(1000, "receive", 4));
                let _ = self.success(WrOpcode::Send);
            } else {
                self.ours.post_recv(1001, 0..4);
                self.theirs.order("send 0 1001 1 0 4");
                let done = self.success(WrOpcode::Recv);
                assert_eq!((done.wr_id, done.byte_len), (1001, 4));
                assert_eq!(self.theirs.done(0).status, "success");
            }
        }
    }

    /// An element of our source.
    pub fn from(&self, range: Range<usize>) -> Sge {
        self.source.slice(range).expect("a range of the region")
    }

    /// Our next completion, which is a success of that kind.
    #[track_caller]
    pub fn success(&self, opcode: WrOpcode) -> WorkCompletion {
        let done = self.ours.completion();
        assert_eq!((done.status, done.opcode), (WcStatus::Success, opcode));
        done
    }

    /// Ends it in order from our side.
    pub fn part(mut self) {
        let begin = thread::scope(|scope| {
            let ended = scope.spawn(|| self.ours.qp.disconnect().wait(LIMIT));
            let event = self.theirs.order("event 0");
            assert_eq!(event, "RDMA_CM_EVENT_DISCONNECTED");
            self.theirs.order("disconnect 0");
            ended.join().expect("no panic")
        });
        begin.expect("an end in order");
    }
}

/// Fills a region, or a part of it, with its own bytes of a seed.
pub fn fill(region: &MemoryRegion, seed: u64, range: Range<usize>) {
    let bytes = Pattern::bytes(seed, range.end);
    region
        .write(range.start, &bytes[range])
        .expect("a range of the region");
}

/// Panics unless a part of a region holds its own bytes of a seed.
#[track_caller]
pub fn check(region: &MemoryRegion, seed: u64, range: Range<usize>) {
    let found = region.to_vec(range.clone()).expect("a range of the region");
    let wanted = &Pattern::bytes(seed, range.end)[range];
    let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
    assert_eq!(differs, None, "a byte of ours differs from seed {seed}");
}
