//! Writes over many queue pairs of one program: whether a thousand connections move as many bytes a
//! second as one, and what they cost while they move none.
//!
//! All queue pairs of an end share a protection domain, a completion queue and a region of memory. The
//! first one also carries the ends' notes. A byte is known to have arrived when an RDMA Read after
//! it has been answered. (RFC 5040 section 5.5: a Read is answered after the Writes before it were placed.) So the
//! receiving end has nothing to do.
//!
//! What is measured is how many messages complete a second, once as many have completed as were posted at the
//! beginning. The start with all queue pairs at once, and the proof of each after the end, are no part of what
//! many queue pairs cost a second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::{
    AcceptOptions, Access, ConnectOptions, Context, Listener, MemoryRegion, ProtectionDomain,
    QueuePair, RemoteMemory, Transport, WorkRequest, WrOpcode,
};
use serde::Serialize;

use super::control::{NOTES_IN_FLIGHT, Note, Notes};
use super::plan::{Figure, Operation, Plan, decode_answer, encode_answer};
use crate::address;
use crate::endpoint::{Endpoint, ToolError};
use crate::report::Goodput;

/// Bytes of memory that messages go round in, unless one needs more.
const SPAN: u64 = 1 << 20;
/// Bytes of the Read that shows that all Writes before it have arrived.
const PROOF: usize = 1;
/// `wr_id`s of these Reads begin here; the number of the queue pair follows, as it does in a Write's.
const PROOF_WR: u64 = 1 << 40;
/// What is measured at a time before it is the other's turn, at least: a machine's speed changes with
/// its neighbours' within seconds.
const TURN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many queue pairs there are, at least 1.
    pub queue_pairs: u32,
    /// Bytes of a message.
    pub size: u32,
    /// Messages outstanding on each queue pair; 0 only holds the connections.
    pub depth: u32,
    /// The first queue pair also writes alone, alternating with all of them, with so many messages outstanding.
    pub alone: Option<u32>,
    pub duration: Duration,
    /// What DDP goes over.
    pub transport: Transport,
}

impl Load {
    /// Whether it can be done.
    ///
    /// # Errors
    /// [`ToolError::Usage`]: one is to write alone, and nothing is to be outstanding.
    pub fn check(&self) -> Result<(), ToolError> {
        match (self.depth, self.alone) {
            (0, Some(_)) | (_, Some(0)) => Err(ToolError::Usage(format!(
                "asked for {} messages outstanding on each queue pair, in turns with {} on one \
                alone; both must be 1 at least",
                self.depth,
                self.alone.unwrap_or_default(),
            ))),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// How many queue pairs there were.
    pub queue_pairs: u32,
    /// How long it took to connect all of them.
    pub connect_seconds: f64,
    /// What they moved together; none when they only were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
    /// What the first moved alone, when it was asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_alone: Option<Goodput>,
}

/// The passive end: takes `queue_pairs` connections of one client and stays until it is done. `told`
/// hears that it listens.
pub fn serve(
    context: &Context,
    listener: &Listener,
    queue_pairs: u32,
    patience: Duration,
    told: impl FnOnce(String),
) -> Result<(), ToolError> {
    told(address::listening(listener));
    let mut all: Option<Passive> = None;
    for _ in 0..queue_pairs.max(1) {
        let request = listener.accept().wait(patience)?;
        let plan = Plan::decode(request.private_data())
            .map_err(|error| error.to_string())
            .and_then(|plan| plan.check().map(|()| plan))
            .map_err(ToolError::Peer)?;
        let answer = |memory: &MemoryRegion, qp: &QueuePair| -> Result<(), ToolError> {
            let options = AcceptOptions::default()
                .private_data(encode_answer(memory.remote(0..memory.len())?));
            Ok(request.accept(qp, options).wait(patience).map(drop)?)
        };
        if let Some(all) = &mut all {
            let qp = all.end.another(&all.pd, 1, 1)?;
            answer(&all.memory, &qp)?;
            all.others.push(qp);
        } else {
            let first = Passive::new(context, &plan, patience)?;
            answer(&first.memory, &first.end.qp)?;
            all = Some(first);
        }
    }
    let Some(mut all) = all else { return Ok(()) };
    match all.notes.await_end(&mut all.end)? {
        Note::Done { .. } => all.notes.say(&all.end, Note::Finished)?,
        other => return Err(unexpected(other)),
    }
    // The client ends the connections when it has heard that.
    all.end.wait_closed()
}

/// The passive end's objects.
struct Passive {
    end: Endpoint,
    notes: Notes,
    others: Vec<QueuePair>,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

impl Passive {
    fn new(context: &Context, plan: &Plan, patience: Duration) -> Result<Self, ToolError> {
        let pd = context.alloc_pd()?;
        let access = Access::READ_WRITE;
        let memory = pd.register(plan.span.max(1) as usize, access)?;
        let end = Endpoint::new(context, &pd, NOTES_IN_FLIGHT, NOTES_IN_FLIGHT + 2, patience)?;
        let notes = Notes::new(&pd)?;
        notes.expect(&end)?;
        Ok(Self {
            end,
            notes,
            others: Vec::new(),
            memory,
            pd,
        })
    }
}

/// The active end: connects all queue pairs, then writes over all of them.
pub fn run(
    context: &Context,
    remote: SocketAddr,
    load: &Load,
    patience: Duration,
    told: impl FnOnce(String),
) -> Result<Outcome, ToolError> {
    let started = Instant::now();
    let mut active = Active::connect(context, remote, load, patience)?;
    let connect_seconds = started.elapsed().as_secs_f64();
    told(format!("connected {} queue pairs", load.queue_pairs));
    let mut outcome = Outcome {
        queue_pairs: load.queue_pairs,
        connect_seconds,
        goodput: None,
        goodput_alone: None,
    };
    if load.depth == 0 {
        active.idle(load.duration)?;
    } else {
        let (all, alone) = active.write(load)?;
        outcome.goodput = Some(all.goodput(load.size));
        outcome.goodput_alone = load.alone.map(|_| alone.goodput(load.size));
    }
    active.end()?;
    Ok(outcome)
}

/// Messages that completed in a time.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    messages: u64,
    elapsed: Duration,
}

impl Measured {
    fn add(&mut self, more: Self) {
        self.messages += more.messages;
        self.elapsed += more.elapsed;
    }

    fn goodput(self, size: u32) -> Goodput {
        let bytes = self.messages * u64::from(size);
        Goodput::new(bytes, self.messages, self.elapsed)
    }
}

/// The active end's objects.
struct Active {
    end: Endpoint,
    notes: Notes,
    others: Vec<QueuePair>,
    memory: MemoryRegion,
    remote: RemoteMemory,
    /// Messages that were posted, and their bytes.
    posted: u64,
    size: u32,
    slots: u64,
}

impl Active {
    fn connect(
        context: &Context,
        remote: SocketAddr,
        load: &Load,
        patience: Duration,
    ) -> Result<Self, ToolError> {
        let span = SPAN.max(u64::from(load.size));
        let plan = Plan::new(
            Operation::Write,
            Figure::Bandwidth,
            load.size,
            load.depth.max(1),
            span,
        );
        plan.check().map_err(ToolError::Usage)?;
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.register(span as usize + PROOF, access)?;
        // The Read that ends it comes when all has completed.
        let depth = load.depth.max(1);
        let first = depth.max(load.alone.unwrap_or_default());
        let (sends, receives) = (first + NOTES_IN_FLIGHT, NOTES_IN_FLIGHT + 2);
        let room = load.queue_pairs.saturating_mul(depth + 1) + sends + receives;
        let end = Endpoint::with_room(context, &pd, sends, receives, room, patience)?;
        let notes = Notes::new(&pd)?;
        notes.expect(&end)?;
        let options = ConnectOptions::default()
            .private_data(plan.encode())
            .transport(load.transport);
        let established = end.qp.connect(remote, options.clone()).wait(patience)?;
        let memory_there = decode_answer(&established.private_data, span)
            .map_err(|error| ToolError::Peer(error.to_string()))?;
        let mut others = Vec::with_capacity(load.queue_pairs as usize);
        for _ in 1..load.queue_pairs {
            let qp = end.another(&pd, depth, 1)?;
            qp.connect(remote, options.clone()).wait(patience)?;
            others.push(qp);
        }
        Ok(Self {
            end,
            notes,
            others,
            memory,
            remote: memory_there,
            posted: 0,
            size: load.size,
            slots: plan.slots(),
        })
    }

    fn queue_pair(&self, number: u64) -> &QueuePair {
        match number {
            0 => &self.end.qp,
            other => &self.others[other as usize - 1],
        }
    }

    /// Only is there.
    fn idle(&mut self, duration: Duration) -> Result<(), ToolError> {
        let until = Instant::now() + duration;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            if self.end.is_inline() {
                self.end.poll()?;
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
        Ok(())
    }

    /// Writes over all queue pairs, alternating with the first one alone if that is asked for, and asks each for
    /// its proof in the end. Returns the results of all of them, and of the one.
    fn write(&mut self, load: &Load) -> Result<(Measured, Measured), ToolError> {
        let queue_pairs = u64::from(load.queue_pairs);
        let turn = load.alone.map_or(load.duration, |_| TURN);
        let (mut all, mut alone) = (Measured::default(), Measured::default());
        while all.elapsed < load.duration {
            if let Some(depth) = load.alone {
                alone.add(self.write_over(1, depth, turn)?);
            }
            all.add(self.write_over(queue_pairs, load.depth, turn)?);
        }
        (0..queue_pairs).try_for_each(|number| self.prove(number))?;
        let mut unproved = queue_pairs;
        while unproved > 0 {
            unproved -= u64::from(self.end.completion()?.opcode == WrOpcode::Read);
        }
        Ok((all, alone))
    }

    /// Keeps `depth` messages outstanding on each of the first `queue_pairs`, and measures for `duration`
    /// once as many as it began with have completed, and as long as that took at least. Then waits until
    /// all have completed.
    fn write_over(
        &mut self,
        queue_pairs: u64,
        depth: u32,
        duration: Duration,
    ) -> Result<Measured, ToolError> {
        let began = Instant::now();
        for _ in 0..depth {
            (0..queue_pairs).try_for_each(|number| self.post(number))?;
        }
        let outstanding = queue_pairs * u64::from(depth);
        for _ in 0..outstanding {
            self.go_on()?;
        }
        let start = Instant::now();
        let least = duration.max(start - began);
        let mut messages: u64 = 0;
        let elapsed = loop {
            self.go_on()?;
            messages += 1;
            // Looking at the clock costs as much as a short message.
            if messages.is_multiple_of(16)
                && let elapsed = start.elapsed()
                && elapsed >= least
            {
                break elapsed;
            }
        };
        for _ in 0..outstanding {
            self.completed()?;
        }
        Ok(Measured { messages, elapsed })
    }

    /// One message completes, and the next goes out over the same queue pair.
    fn go_on(&mut self) -> Result<(), ToolError> {
        let number = self.completed()?;
        self.post(number)
    }

    /// The number of the queue pair over which a Write has completed.
    fn completed(&mut self) -> Result<u64, ToolError> {
        loop {
            let done = self.end.completion()?;
            if done.opcode == WrOpcode::Write {
                return Ok(done.wr_id);
            }
        }
    }

    fn post(&mut self, number: u64) -> Result<(), ToolError> {
        let at = (self.posted % self.slots) * u64::from(self.size);
        let from = at as usize;
        // The last message of the span may be cut short: the same bytes go instead.
        let from = from.min(self.memory.len() - PROOF - self.size as usize);
        let sge = [self.memory.slice(from..from + self.size as usize)?];
        let work = WorkRequest::write(number, &sge, self.remote.offset(from as u64));
        self.queue_pair(number).post_send(work)?;
        self.posted += 1;
        Ok(())
    }

    /// Reads behind all Writes of a queue pair.
    fn prove(&self, number: u64) -> Result<(), ToolError> {
        let end = self.memory.len();
        let sge = [self.memory.slice(end - PROOF..end)?];
        let work = WorkRequest::read(PROOF_WR | number, &sge, self.remote);
        Ok(self.queue_pair(number).post_send(work)?)
    }

    /// Says that this is all, and ends the first connection in order; the others end with it.
    fn end(mut self) -> Result<(), ToolError> {
        let messages = self.posted;
        self.notes.say(&self.end, Note::Done { messages })?;
        loop {
            let done = self.end.completion()?;
            match self.notes.heard(&self.end, &done)? {
                Some(Note::Finished) => return self.end.disconnect(),
                Some(other) => return Err(unexpected(other)),
                // Its own note went out.
                None => {}
            }
        }
    }
}

fn unexpected(note: Note) -> ToolError {
    ToolError::Peer(format!(
        "the other end said {note:?}, which does not belong here"
    ))
}
