//! An RNIC and the peer in C of `tests/interop/sctp`, over usrsctp and protocol 132: nothing of the peer is ours but its
//! reading of the RFCs. All operations go both ways, and what the peer does wrong on purpose is answered as the RFCs say.

use std::time::Duration;

use rnic::{
    Access, CompletionQueue, ConnectOptions, Context, DisconnectReason, Error, ListenOptions,
    Listener, MemoryRegion, MpaOptions, ProtectionDomain, QpConfig, QueuePair, RemoteMemory,
    Transport, WorkCompletion, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, Host, Lab, LinkOptions, Process};
use rnic_tests::{usrsctp, wait};

const PORT: u16 = 4791;
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of each part of our memory: what we send, what the peer sends, what we read.
const PART: usize = 200_000;
const PARTS: usize = 3;
const RECEIVES: u64 = 3;
/// Sends of the peer, and ours.
const SENDS: [usize; 3] = [1, 1400, 40_000];
const WRITE: usize = 70_001;
const READ: usize = 65_537;
/// The peer's buffer: STag, first offset, bytes.
const THEIRS: (u32, u64) = (1, 4096);

/// An RNIC on one host, the peer's program on the other.
struct TestBed {
    daemon: Daemon,
    ours: Host,
    theirs: Host,
    _lab: Lab,
}

impl TestBed {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (ours, theirs) = lab.pair(&LinkOptions::default());
        let daemon = Daemon::start(&lab, &ours, &DaemonOptions::default());
        Self {
            daemon,
            ours,
            theirs,
            _lab: lab,
        }
    }

    /// The peer as `listen` or `connect`.
    fn peer(&self, role: &str, family: Family, words: &[String]) -> Command {
        let address = |host: &Host| host.address(family, 0).ip().to_string();
        let port = PORT.to_string();
        let program = usrsctp::program("ddp-sctp-peer");
        let command = self.theirs.namespace.command(program).label("peer");
        let command = command.args([role, "--local", &address(&self.theirs), "--port", &port]);
        match role {
            "connect" => command.args(["--remote", &address(&self.ours)]),
            _ => command,
        }
        .args(words)
    }

    /// It listens.
    fn listening(&self, family: Family, words: &[String]) -> Process {
        let process = self.peer("listen", family, words).spawn();
        wait::until("the peer listens", LIMIT, || {
            process.stdout().contains("event=listening").then_some(())
        });
        process
    }

    fn listener(&self, context: &Context, family: Family) -> Listener {
        let at = self.ours.address(family, PORT);
        let options = ListenOptions::default().transport(Transport::Sctp);
        Listener::bind_with(context, at, options).expect("nobody listens there")
    }
}

/// A queue pair, and memory for what it does.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// Where the peer writes and reads.
    window: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Side {
    /// With receives of so many bytes.
    fn new(context: &Context, receives: Option<usize>) -> Self {
        let pd = ProtectionDomain::alloc(context).expect("within limits");
        let cq = CompletionQueue::create(context, 64).expect("within limits");
        let qp = QueuePair::create(&pd, &cq, &cq, QpConfig::default()).expect("within limits");
        let access = Access {
            local_write: true,
            remote_read: true,
            remote_write: true,
            ..Access::default()
        };
        let [memory, window] =
            [PARTS * PART, PART].map(|len| pd.register(len, access).expect("within limits"));
        let bytes: Vec<u8> = (0..PART).map(|at| (at * 13 + at / 251) as u8).collect();
        memory.write(0, &bytes).expect("it is ours");
        for number in 0..RECEIVES {
            let Some(len) = receives else { break };
            let from = PART + number as usize * (PART / RECEIVES as usize);
            let sge = memory.slice(from..from + len).expect("within it");
            let posted = qp.post_recv(WorkRequest::recv(number, &[sge]));
            posted.expect("there is room");
        }
        Self {
            qp,
            cq,
            memory,
            window,
            _pd: pd,
        }
    }

    /// Where the peer writes and reads, as its options say it.
    fn words(&self) -> [String; 2] {
        let at = &self.window;
        ["--peer".to_owned(), format!("{}:{}", at.stag(), at.addr())]
    }

    fn bytes(&self, from: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(from, &mut bytes).expect("it is ours");
        bytes
    }

    /// Writes, Sends and Reads, and waits for all of it and for the peer's Sends.
    fn work(&self) {
        let peer = RemoteMemory {
            addr: THEIRS.1,
            stag: THEIRS.0,
            len: PART as u64,
        };
        let part = |from: usize, len: usize| self.memory.slice(from..from + len).expect("within");
        let mut seen = Vec::new();
        let read = [part(2 * PART, READ)];
        let read = WorkRequest::read(10, &read, peer);
        self.qp.post_send(read).expect("there is room");
        // What is written must not be what is read.
        self.until(&mut seen, [10]);
        let write = [part(0, WRITE)];
        let write = WorkRequest::write(11, &write, peer);
        self.qp.post_send(write).expect("there is room");
        for (number, len) in (20..).zip(SENDS) {
            let sge = [part(0, len)];
            let send = WorkRequest::send(number, &sge);
            self.qp.post_send(send).expect("there is room");
        }
        let sends = SENDS.len() as u64;
        self.until(&mut seen, (20..20 + sends).chain(0..sends).chain([11]));
    }

    /// Takes completions until all of these were among them.
    fn until(&self, seen: &mut Vec<u64>, all: impl IntoIterator<Item = u64>) {
        let all: Vec<u64> = all.into_iter().collect();
        wait::until("completions", LIMIT, || {
            let mut some = [WorkCompletion::default(); 16];
            let count = self.cq.poll(&mut some).expect("no overrun");
            for one in &some[..count] {
                seen.push(one.ok().expect("it succeeds").wr_id);
            }
            all.iter().all(|id| seen.contains(id)).then_some(())
        });
    }

    /// All that came and went is what the peer says that it sent and got.
    #[track_caller]
    fn assert_like(&self, output: &str) {
        let part = PART / RECEIVES as usize;
        let received: Vec<_> = (0..SENDS.len())
            .map(|number| self.bytes(PART + number * part, SENDS[number]))
            .collect();
        let ours: Vec<_> = SENDS.map(|len| self.bytes(0, len)).into();
        assert_eq!(
            said(output, "event=sent sid=0 op=send"),
            sums(&received),
            "{output}"
        );
        assert_eq!(said(output, "event=received"), sums(&ours), "{output}");
        let written = self.window.to_vec(0..WRITE).expect("it is ours");
        assert_eq!(
            said(output, "event=sent sid=0 op=write"),
            sums(&[written]),
            "{output}"
        );
        assert_eq!(
            said(output, &format!("event=written sid=0 stag={}", THEIRS.0)),
            sums(&[self.bytes(0, WRITE)]),
            "{output}"
        );
        // What it has at first.
        let byte = |at: usize| (31 * THEIRS.0 as usize + 7 * at + at / 256) as u8;
        let read: Vec<u8> = (0..READ).map(byte).collect();
        assert!(self.bytes(2 * PART, READ) == read, "what was read");
        // And read from us, before or behind what it wrote there.
        assert!(output.contains("event=read-done"), "{output}");
        for trouble in [
            "event=violation",
            "event=error",
            "event=stray",
            "event=late",
        ] {
            assert!(!output.contains(trouble), "{output}");
        }
    }
}

/// What the peer does: the same as we, without its end.
fn steps(side: &Side) -> Vec<String> {
    let mut words: Vec<String> = side.words().into();
    words.extend([
        "--buffer".to_owned(),
        format!("{}:{}:{PART}", THEIRS.0, THEIRS.1),
    ]);
    words.extend(["--buffer", "2:0:200000", "--sink", "2:0"].map(str::to_owned));
    let sends = SENDS.map(|len| format!("send:{len}"));
    let steps = [
        format!("write:{WRITE}"),
        format!("read:{READ}"),
        "reads".to_owned(),
    ];
    for step in steps.into_iter().chain(sends) {
        words.extend(["--do".to_owned(), step]);
    }
    words
}

/// CRC-32, as the peer prints it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let each = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(u32::MAX, each)
}

fn sums(messages: &[Vec<u8>]) -> Vec<String> {
    let sum = |message: &Vec<u8>| format!("len={} crc={:08x}", message.len(), crc32(message));
    messages.iter().map(sum).collect()
}

/// Lengths and checksums of the peer's lines that begin so.
fn said(output: &str, head: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| line.starts_with(head));
    let sum = lines.filter_map(|line| line.find("len=").map(|at| line[at..].to_owned()));
    sum.collect()
}

fn options(revision: u8) -> ConnectOptions {
    let mpa = MpaOptions {
        revision,
        ..MpaOptions::default()
    };
    ConnectOptions::default()
        .transport(Transport::Sctp)
        .mpa(mpa)
        .private_data(*b"hello")
        .timeout(LIMIT)
}

#[test]
fn all_operations_go_both_ways_where_we_begin() {
    let bed = TestBed::new("sctp-peer-active");
    let context = Context::open(bed.daemon.socket()).expect("the daemon serves");
    for (family, revision) in [(Family::V4, 2), (Family::V6, 1)] {
        let side = Side::new(&context, Some(PART / RECEIVES as usize));
        let mut words = steps(&side);
        words.extend(["--do", "hold", "--private", "796573"].map(str::to_owned));
        let peer = bed.listening(family, &words);
        let at = bed.theirs.address(family, PORT);
        let established = side.qp.connect(at, options(revision));
        let established = established.unwrap_or_else(|error| panic!("{error}: {}", peer.stdout()));
        assert_eq!(established.private_data, b"yes");
        assert_eq!(established.mpa.revision, revision);
        side.work();
        wait::until("the peer's Read", LIMIT, || {
            peer.stdout().contains("event=read-done").then_some(())
        });
        side.qp.disconnect(LIMIT).expect("an end in peace");
        let output = peer.finish(LIMIT).success().stdout;
        side.assert_like(&output);
        assert!(output.contains("68656c6c6f"), "our private data: {output}");
    }
}

#[test]
fn all_operations_go_both_ways_where_the_peer_begins() {
    let bed = TestBed::new("sctp-peer-passive");
    let context = Context::open(bed.daemon.socket()).expect("the daemon serves");
    for (family, enhanced) in [(Family::V4, true), (Family::V6, false)] {
        let listener = bed.listener(&context, family);
        let side = Side::new(&context, Some(PART / RECEIVES as usize));
        let mut words = steps(&side);
        words.extend(["--do".to_owned(), format!("recv:{}", SENDS.len())]);
        words.extend(["--private", "0102"].map(str::to_owned));
        if enhanced {
            words.push("--enhanced".to_owned());
        }
        let peer = bed.peer("connect", family, &words).spawn();
        let request = listener.accept_request(LIMIT).expect("it asks");
        assert_eq!(request.private_data(), [1, 2]);
        assert_eq!(request.mpa().revision, 1 + u8::from(enhanced));
        request
            .accept(&side.qp, b"welcome", LIMIT)
            .expect("it waits");
        side.work();
        side.qp.wait_disconnected(LIMIT).expect("an end in peace");
        let output = peer.finish(LIMIT).success().stdout;
        side.assert_like(&output);
    }
}

#[test]
fn a_rejection_is_heard_either_way() {
    let bed = TestBed::new("sctp-peer-reject");
    let context = Context::open(bed.daemon.socket()).expect("the daemon serves");
    let side = Side::new(&context, None);
    let words = ["--reject", "--private", "6e6f"].map(str::to_owned);
    let peer = bed.listening(Family::V4, &words);
    let at = bed.theirs.address(Family::V4, PORT);
    let rejected = side.qp.connect(at, options(2)).expect_err("it is rejected");
    let heard = matches!(&rejected, Error::Rejected { private_data, .. } if private_data == b"no");
    assert!(heard, "{rejected:?}");
    let output = peer.finish(LIMIT).success().stdout;
    assert!(output.contains("how=rejected"), "{output}");

    let listener = bed.listener(&context, Family::V4);
    let peer = bed.peer("connect", Family::V4, &["--enhanced".to_owned()]);
    let peer = peer.spawn();
    let request = listener.accept_request(LIMIT).expect("it asks");
    request.reject(b"not now").expect("it waits");
    let output = peer.finish(LIMIT).success().stdout;
    assert!(output.contains("how=rejected"), "{output}");
    assert!(output.contains("6e6f74206e6f77"), "{output}");
}

/// What the peer does wrong on purpose, by its number (`tests/interop/sctp/README.md`).
const BEFORE_THE_SESSION: [u32; 9] = [1, 2, 4, 5, 6, 7, 8, 9, 10];
const WITHIN_IT: [u32; 11] = [11, 12, 13, 16, 17, 19, 20, 21, 22, 23, 24];
const AS_THE_ANSWER: [u32; 4] = [50, 51, 53, 54];
/// With the Terminate that answers it: layer, error type, error code.
const TERMINATED: [(u32, u16); 18] = [
    (27, 0x1100),
    (28, 0x1101),
    (29, 0x1103),
    (30, 0x1104),
    (31, 0x1206),
    (32, 0x0205),
    (33, 0x0206),
    (34, 0x1201),
    (35, 0x1203),
    (36, 0x1204),
    (37, 0x1205),
    (39, 0x0100),
    (40, 0x0101),
    (44, 0x0206),
    (46, 0x0109),
    (47, 0x0206),
    (48, 0x0206),
    (49, 0x0206),
];

fn wrong(number: u32) -> Vec<String> {
    ["--wrong".to_owned(), number.to_string()].into()
}

/// A session that the peer listens for, and what ended it.
fn ends_by(bed: &TestBed, context: &Context, number: u32) -> Error {
    let side = Side::new(context, Some(1000));
    let mut words: Vec<String> = side.words().into();
    words.extend(wrong(number));
    let mut peer = bed.listening(Family::V4, &words);
    let at = bed.theirs.address(Family::V4, PORT);
    let ended = match side.qp.connect(at, options(1)) {
        Ok(_) => side.qp.wait_disconnected(LIMIT),
        Err(error) => Err(error),
    };
    let ended = ended.map_err(Some).err().flatten();
    // Its patience is longer than ours.
    peer.kill();
    ended.unwrap_or_else(|| panic!("{number}: no error"))
}

#[test]
fn what_breaks_the_rules_of_a_session_ends_it_and_nothing_else() {
    let mut bed = TestBed::new("sctp-peer-wrong");
    let context = Context::open(bed.daemon.socket()).expect("the daemon serves");
    for number in WITHIN_IT.into_iter().chain(AS_THE_ANSWER) {
        let error = ends_by(&bed, &context, number);
        let (Error::Disconnected { reason, message } | Error::ConnectFailed { reason, message }) =
            &error
        else {
            panic!("{number}: {error:?}");
        };
        assert_eq!(*reason, DisconnectReason::NotMpa, "{number}: {message}");
    }
    let listener = bed.listener(&context, Family::V4);
    for number in BEFORE_THE_SESSION {
        let mut peer = bed.peer("connect", Family::V4, &wrong(number)).spawn();
        wait::until("the association is over", LIMIT, || {
            let all = bed.daemon.counter("passive_opens");
            (all > 0 && bed.daemon.live_connections() == 0).then_some(())
        });
        peer.kill();
        let asked = listener.accept_request(Duration::ZERO);
        assert!(matches!(asked, Err(Error::Timeout { .. })), "{number}");
    }
    bed.daemon.assert_alive();
}

#[test]
fn what_ddp_and_rdmap_refuse_is_answered_by_the_right_terminate() {
    let mut bed = TestBed::new("sctp-peer-terminates");
    let context = Context::open(bed.daemon.socket()).expect("the daemon serves");
    for (number, control) in TERMINATED {
        let error = ends_by(&bed, &context, number);
        let Error::Disconnected { reason, message } = &error else {
            panic!("{number}: {error:?}");
        };
        let expected = DisconnectReason::TerminateSent { control };
        assert_eq!(*reason, expected, "{number}: {message}");
    }
    bed.daemon.assert_alive();
}
