//! One end of a session with the peer in C: what it does, and what both must say of it.

use std::net::SocketAddr;
use std::time::Duration;

use rnic::{
    AcceptOptions, Access, CompletionQueue, Context, Listener, MemoryRegion, ProtectionDomain,
    QpConfig, QueuePair, RemoteMemory, WorkCompletion, WorkRequest,
};
use rnic_tests::lab::Process;
use rnic_tests::peer::Job;
use rnic_tests::wait;

use super::{LIMIT, options};

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

/// A queue pair, and memory for what it does.
pub struct Side {
    pub qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// Where the peer writes and reads.
    window: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Side {
    /// With receives of so many bytes.
    pub fn new(context: &Context, receives: Option<usize>) -> Self {
        let pd = context.alloc_pd().expect("within limits");
        let cq = context.create_cq(64).expect("within limits");
        let qp = pd
            .create_qp(&cq, &cq, QpConfig::default())
            .expect("within limits");
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
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
    pub fn words(&self) -> [String; 2] {
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

/// The peer's program while it runs.
pub trait Program {
    /// What it has written until now.
    fn said(&self) -> String;
    /// All that it wrote, once it has ended well.
    fn end(self) -> String;
}

impl Program for Process {
    fn said(&self) -> String {
        self.stdout()
    }

    fn end(self) -> String {
        self.finish(LIMIT).success().stdout
    }
}

impl Program for Job {
    fn said(&self) -> String {
        self.stdout()
    }

    fn end(self) -> String {
        self.finish(LIMIT).success().stdout
    }
}

/// All operations both ways with a peer that `listens` with such words.
pub fn where_we_begin<P: Program>(
    context: &Context,
    at: SocketAddr,
    revision: u8,
    listens: impl FnOnce(&[String]) -> P,
) {
    where_we_begin_and(context, at, revision, listens, || {});
}

/// The same; before our operations something happens.
pub fn where_we_begin_and<P: Program>(
    context: &Context,
    at: SocketAddr,
    revision: u8,
    listens: impl FnOnce(&[String]) -> P,
    happens: impl FnOnce(),
) {
    let side = Side::new(context, Some(PART / RECEIVES as usize));
    let mut words = steps(&side);
    words.extend(["--do", "hold", "--private", "796573"].map(str::to_owned));
    let peer = listens(&words);
    let established = side
        .qp
        .connect(at, options(revision))
        .wait(Duration::from_secs(10));
    let established = established.unwrap_or_else(|error| panic!("{error}: {}", peer.said()));
    assert_eq!(established.private_data, b"yes");
    assert_eq!(established.mpa.revision, revision);
    happens();
    side.work();
    wait::until("the peer's Read", LIMIT, || {
        peer.said().contains("event=read-done").then_some(())
    });
    side.qp.disconnect().wait(LIMIT).expect("an end in peace");
    let output = peer.end();
    side.assert_like(&output);
    assert!(output.contains("68656c6c6f"), "our private data: {output}");
}

/// The same with a peer that `connects`.
pub fn where_the_peer_begins<P: Program>(
    context: &Context,
    listener: &Listener,
    enhanced: bool,
    connects: impl FnOnce(&[String]) -> P,
) {
    where_the_peer_begins_and(context, listener, enhanced, connects, || {});
}

/// The same; before our operations something happens.
pub fn where_the_peer_begins_and<P: Program>(
    context: &Context,
    listener: &Listener,
    enhanced: bool,
    connects: impl FnOnce(&[String]) -> P,
    happens: impl FnOnce(),
) {
    let side = Side::new(context, Some(PART / RECEIVES as usize));
    let mut words = steps(&side);
    words.extend(["--do".to_owned(), format!("recv:{}", SENDS.len())]);
    words.extend(["--private", "0102"].map(str::to_owned));
    if enhanced {
        words.push("--enhanced".to_owned());
    }
    let peer = connects(&words);
    let request = listener.accept().wait(LIMIT);
    let request = request.unwrap_or_else(|error| panic!("{error}: {}", peer.said()));
    assert_eq!(request.private_data(), [1, 2]);
    assert_eq!(request.mpa().revision, 1 + u8::from(enhanced));
    request
        .accept(&side.qp, AcceptOptions::default().private_data(b"welcome"))
        .wait(LIMIT)
        .expect("it waits");
    happens();
    side.work();
    side.qp.disconnected().wait(LIMIT).expect("an end in peace");
    side.assert_like(&peer.end());
}
