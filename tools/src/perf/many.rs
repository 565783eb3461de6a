//! Writes over many queue pairs of one program: whether a thousand connections move as many octets a
//! second as one, and what they cost while they move none.
//!
//! All queue pairs of an end share a protection domain, a completion queue and a region of memory. The
//! first one also carries the ends' notes. An octet is known to have arrived when an RDMA Read behind
//! it has been answered (RFC 5040 section 5.5: a Read is answered after the Writes before it were
//! placed), so the receiving end has nothing to do.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::{
    AcceptOptions, Access, ConnectOptions, Context, Listener, MemoryRegion, ProtectionDomain,
    QueuePair, RemoteMemory, WorkRequest, WrOpcode,
};
use serde::Serialize;

use super::control::{NOTES_IN_FLIGHT, Note, Notes};
use super::plan::{Figure, Operation, Plan, decode_answer, encode_answer};
use crate::endpoint::{Endpoint, ToolError};
use crate::report::Goodput;

/// Octets of memory that messages go round in, unless one needs more.
const SPAN: u64 = 1 << 20;
/// Octets of the Read that shows that all Writes before it have arrived.
const PROOF: usize = 1;
/// `wr_id`s of these Reads begin here; the number of the queue pair follows, as it does in a Write's.
const PROOF_WR: u64 = 1 << 40;

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many queue pairs there are, at least 1.
    pub queue_pairs: u32,
    /// Octets of a message.
    pub size: u32,
    /// Messages outstanding on each queue pair; 0 only holds the connections.
    pub depth: u32,
    /// How long.
    pub duration: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// How many queue pairs there were.
    pub queue_pairs: u32,
    /// How long it took to connect all of them.
    pub connect_seconds: f64,
    /// What they moved together; none when they only were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
}

/// The passive end: takes `queue_pairs` connections of one client and stays until it is done. `told`
/// hears that it listens.
pub fn serve(
    context: &Context,
    local: SocketAddr,
    queue_pairs: u32,
    patience: Duration,
    told: impl FnOnce(String),
) -> Result<(), ToolError> {
    let listener = Listener::bind(context, local, 128)?;
    told(format!("listening on {}", listener.local_addr()));
    let mut all: Option<Passive> = None;
    for _ in 0..queue_pairs.max(1) {
        let request = listener.accept_request(patience)?;
        let plan = Plan::decode(request.private_data())
            .map_err(|error| error.to_string())
            .and_then(|plan| plan.check().map(|()| plan))
            .map_err(ToolError::Peer)?;
        let answer = |memory: &MemoryRegion, qp: &QueuePair| -> Result<(), ToolError> {
            let options = AcceptOptions {
                private_data: encode_answer(memory.remote(0..memory.len())?),
                timeout: patience,
                ..AcceptOptions::default()
            };
            Ok(request.accept_with(qp, options).map(drop)?)
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
    match all.notes.listen(&mut all.end)? {
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
        let pd = ProtectionDomain::alloc(context)?;
        let access = Access {
            local_write: true,
            remote_read: true,
            remote_write: true,
            ..Access::default()
        };
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
    let goodput = if load.depth == 0 {
        active.idle(load.duration)?;
        None
    } else {
        Some(active.write(load)?)
    };
    active.end()?;
    Ok(Outcome {
        queue_pairs: load.queue_pairs,
        connect_seconds,
        goodput,
    })
}

/// The active end's objects.
struct Active {
    end: Endpoint,
    notes: Notes,
    others: Vec<QueuePair>,
    memory: MemoryRegion,
    remote: RemoteMemory,
    /// Messages that were posted, and their octets.
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
        let pd = ProtectionDomain::alloc(context)?;
        let access = Access {
            local_write: true,
            remote_write: true,
            ..Access::default()
        };
        let memory = pd.register(span as usize + PROOF, access)?;
        // One more for the Read that ends it.
        let depth = load.depth + 1;
        let (sends, receives) = (depth + NOTES_IN_FLIGHT, NOTES_IN_FLIGHT + 2);
        let room = load.queue_pairs.saturating_mul(depth + 1) + sends + receives;
        let end = Endpoint::with_room(context, &pd, sends, receives, room, patience)?;
        let notes = Notes::new(&pd)?;
        notes.expect(&end)?;
        let options = ConnectOptions {
            private_data: plan.encode(),
            timeout: patience,
            ..ConnectOptions::default()
        };
        let established = end.qp.connect(remote, options.clone())?;
        let memory_there = decode_answer(&established.private_data, span)
            .map_err(|error| ToolError::Peer(error.to_string()))?;
        let mut others = Vec::with_capacity(load.queue_pairs as usize);
        for _ in 1..load.queue_pairs {
            let qp = end.another(&pd, depth, 1)?;
            qp.connect(remote, options.clone())?;
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

    /// Keeps `depth` messages outstanding on each queue pair for so long, then waits until all have
    /// arrived.
    fn write(&mut self, load: &Load) -> Result<Goodput, ToolError> {
        let queue_pairs = u64::from(load.queue_pairs);
        let started = Instant::now();
        for _ in 0..load.depth {
            (0..queue_pairs).try_for_each(|number| self.post(number))?;
        }
        let mut outstanding = vec![load.depth; load.queue_pairs as usize];
        let mut unproved = queue_pairs;
        let (mut completed, mut over) = (0_u64, false);
        while unproved > 0 {
            let done = self.end.completion()?;
            match done.opcode {
                WrOpcode::Read => unproved -= 1,
                WrOpcode::Write => {
                    completed += 1;
                    let number = done.wr_id;
                    // Looking at the clock costs as much as a short message.
                    over |= completed.is_multiple_of(16) && started.elapsed() >= load.duration;
                    if over {
                        outstanding[number as usize] -= 1;
                        if outstanding[number as usize] == 0 {
                            self.prove(number)?;
                        }
                    } else {
                        self.post(number)?;
                    }
                }
                _ => {}
            }
        }
        let octets = completed * u64::from(self.size);
        Ok(Goodput::new(octets, completed, started.elapsed()))
    }

    fn post(&mut self, number: u64) -> Result<(), ToolError> {
        let at = (self.posted % self.slots) * u64::from(self.size);
        let from = at as usize;
        // The last message of the span may be cut short: the same octets go instead.
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
