//! `rnic-perf --verify` says of every byte that it was compared: one that is wrong, or does not come,
//! is reported with its place, wherever it is and by whatever operation it should have come.
//!
//! The other end of each transfer is one that lies: it speaks rnic-perf's protocol, and what it sends,
//! or has in its memory to be read, is not what it says.

use std::net::SocketAddr;
use std::time::Duration;

use rnic::{
    AcceptOptions, Access, ConnectOptions, Context, ListenOptions, Listener, MemoryRegion,
    MpaOptions, RemoteMemory, WorkRequest,
};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::tool;
use rnic_tools::endpoint::Endpoint;
use rnic_tools::pattern::Pattern;
use rnic_tools::perf::bandwidth::{self, Span, Until};
use rnic_tools::perf::control::{NOTES_IN_FLIGHT, Note, Notes};
use rnic_tools::perf::plan::{Figure, Operation, Plan, decode_answer, encode_answer};
use rnic_tools::progress::Progress;

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);
/// Of a message: the last one of a transfer is shorter.
const SIZE: u32 = 100_003;
const BYTES: u64 = (1 << 20) + 200_001;
const DEPTH: u32 = 8;
/// The first, the last, and where anything begins or ends: messages, and what is compared at a time.
const PLACES: [u64; 9] = [
    0,
    1,
    4095,
    4096,
    SIZE as u64 - 1,
    SIZE as u64,
    (1 << 20) - 1,
    1 << 20,
    BYTES - 1,
];

/// A transfer whose every byte is to be compared.
fn plan(operation: Operation) -> Plan {
    let mut plan = Plan::new(operation, Figure::Bandwidth, SIZE, DEPTH, BYTES);
    (plan.verify, plan.seed) = (true, 7);
    plan
}

/// What should arrive, with one byte wrong.
fn bytes(plan: &Plan, wrong: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![0; plan.span as usize];
    Pattern::new(plan.seed).fill(0, &mut bytes);
    if let Some(wrong) = wrong {
        bytes[wrong as usize] ^= 1;
    }
    bytes
}

struct Liar {
    end: Endpoint,
    notes: Notes,
    region: MemoryRegion,
}

impl Liar {
    fn new(context: &Context, plan: &Plan, wrong: Option<u64>) -> Self {
        let pd = context.alloc_pd().expect("a protection domain");
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let region = pd.register(plan.span as usize, access).expect("a region");
        region.write(0, &bytes(plan, wrong)).expect("in the region");
        let (sends, receives) = (4 * DEPTH, NOTES_IN_FLIGHT + 2);
        let end = Endpoint::new(context, &pd, sends, receives, LIMIT).expect("a queue pair");
        let notes = Notes::new(&pd).expect("memory for notes");
        notes.expect(&end).expect("room for receives");
        Self { end, notes, region }
    }

    /// Begins a transfer to a server, which says where its memory is.
    fn connect(&self, at: SocketAddr, plan: &Plan) -> RemoteMemory {
        let options = ConnectOptions::default().private_data(plan.encode());
        let established = self
            .end
            .qp
            .connect(at, options)
            .wait(LIMIT)
            .expect("a server");
        decode_answer(&established.private_data, plan.span).expect("rnic-perf's answer")
    }

    /// Posts a range of the memory as one message.
    fn post(&self, plan: &Plan, memory: RemoteMemory, range: std::ops::Range<u64>) {
        let local = range.start as usize..range.end as usize;
        let sge = [self.region.slice(local).expect("in the region")];
        let work = match plan.operation {
            Operation::Write => WorkRequest::write(0, &sge, memory.offset(range.start)),
            Operation::Send => WorkRequest::send(0, &sge),
            Operation::Read => unreachable!("nothing is sent"),
        };
        self.end.qp.post_send(work).expect("room on the send queue");
    }

    /// Says that all messages were sent, and hears what the server thinks of them.
    fn verdict(mut self, plan: &Plan) -> Note {
        let messages = plan.slots();
        let done = Note::Done { messages };
        self.notes.say(&self.end, done).expect("a connection");
        loop {
            match self.notes.listen(&mut self.end).expect("an answer") {
                Note::Finished | Note::Credit { .. } => {}
                verdict => return verdict,
            }
        }
    }
}

/// What the server says when the client sends this byte wrong.
fn verdict(context: &Context, at: SocketAddr, plan: &Plan, wrong: Option<u64>) -> Note {
    let mut liar = Liar::new(context, plan, wrong);
    let memory = liar.connect(at, plan);
    let span = Span {
        until: Until::Messages(plan.slots()),
        turn: None,
    };
    let Liar { end, notes, region } = &mut liar;
    let mut progress = Progress::new("", None, true);
    let run = bandwidth::run(end, notes, region, memory, plan, span, &mut progress);
    let (_, verdict) = run.expect("a transfer");
    liar.end.disconnect().expect("an end in order");
    verdict
}

#[test]
fn a_wrong_byte_that_is_sent_or_written_is_reported_with_its_place() {
    let pair = Pair::new("verify");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let context = pair.daemon_a.open();
    for operation in [Operation::Write, Operation::Send] {
        let plan = plan(operation);
        let all = Note::Verified { bytes: BYTES };
        assert_eq!(verdict(&context, at, &plan, None), all);
        for position in PLACES {
            let found = verdict(&context, at, &plan, Some(position));
            assert_eq!(found, Note::Corrupt { position }, "{operation:?}");
        }
    }

    // A byte that is never written, and would have been like the memory before.
    let plan = plan(Operation::Write);
    let zero = bytes(&plan, None).iter().position(|byte| *byte == 0);
    let position = zero.expect("a byte of 0") as u64;
    let liar = Liar::new(&context, &plan, None);
    let memory = liar.connect(at, &plan);
    liar.post(&plan, memory, 0..position);
    liar.post(&plan, memory, position + 1..BYTES);
    assert_eq!(liar.verdict(&plan), Note::Corrupt { position });

    // A message that is never sent.
    let plan = self::plan(Operation::Send);
    let liar = Liar::new(&context, &plan, None);
    let memory = liar.connect(at, &plan);
    let last = plan.slots() - 1;
    for (position, len) in (0..last).map(|number| plan.place(number)) {
        liar.post(&plan, memory, position..position + u64::from(len));
    }
    let position = plan.place(last).0;
    assert_eq!(liar.verdict(&plan), Note::Corrupt { position });
}

/// Serves one Read from memory in which this byte is wrong.
fn serve(context: &Context, listener: &Listener, wrong: Option<u64>) {
    let request = listener.accept().wait(LIMIT).expect("a client");
    let plan = Plan::decode(request.private_data()).expect("a plan");
    let mut liar = Liar::new(context, &plan, wrong);
    let memory = liar.region.remote(0..liar.region.len()).expect("all of it");
    let options = AcceptOptions::default()
        .private_data(encode_answer(memory))
        .mpa(MpaOptions::default());
    request
        .accept(&liar.end.qp, options)
        .wait(LIMIT)
        .expect("a client");
    let done = liar.notes.await_end(&mut liar.end);
    let messages = plan.slots();
    assert_eq!(done.expect("the client's word"), Note::Done { messages });
    for note in [Note::Finished, Note::Verified { bytes: 0 }] {
        liar.notes.say(&liar.end, note).expect("a connection");
    }
    liar.end.wait_closed().expect("an end in order");
}

#[test]
fn a_wrong_byte_that_is_read_is_reported_with_its_place() {
    let pair = Pair::new("verify-read");
    let at = pair.b.address(Family::V4, PORT);
    let context = pair.daemon_b.open();
    let listener = context
        .listen(at, ListenOptions::default().backlog(4))
        .expect("a free address");
    let read = |wrong: Option<u64>| {
        let (size, bytes) = (SIZE.to_string(), BYTES.to_string());
        let options = [
            "--op", "read", "--verify", "--size", &size, "--bytes", &bytes,
        ];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &options);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&context, &listener, wrong));
            client.run()
        })
    };
    let report = tool::report(&read(None).success());
    assert_eq!(report["verified_bytes"], BYTES, "{report}");
    for position in PLACES {
        let told = read(Some(position)).failure();
        let expected = format!("byte {position} of the transfer differs from what was sent");
        assert!(told.contains(&expected), "{told}");
    }
}
