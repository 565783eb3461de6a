//! The passive end: takes plans from clients and serves each on a thread of its own.

use std::time::Duration;

use rnic::{
    AcceptOptions, Access, ConnectionRequest, Context, Listener, MemoryRegion, MpaOptions,
    ProtectionDomain, WorkRequest,
};

use super::control::{self, NOTE, NOTES_IN_FLIGHT, Note, Notes};
use super::plan::{Figure, Operation, Plan, encode_answer};
use super::{bandwidth, latency};
use crate::address;
use crate::endpoint::{Endpoint, ToolError, Waiting};
use crate::pattern::Pattern;

/// Serves clients; with `once` just the first. `told` hears of each in a line.
pub fn run(
    context: &Context,
    listener: &Listener,
    mpa: MpaOptions,
    once: bool,
    waiting: Waiting,
    mut told: impl FnMut(String),
) -> Result<(), ToolError> {
    told(address::listening(listener));
    loop {
        let request = match listener.accept().wait(Duration::from_secs(3600)) {
            Ok(request) => request,
            Err(rnic::Error::Timeout { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let remote = request.remote();
        let asked = Plan::decode(request.private_data())
            .map_err(|error| error.to_string())
            .and_then(|plan| plan.check().map(|()| plan));
        let plan = match asked {
            Ok(plan) => plan,
            Err(reason) => {
                told(format!("{remote}: rejected: {reason}"));
                // A client that is gone by now needs no rejection, and takes no server with it.
                if let Err(error) = request.reject(b"rnic-perf: impossible plan") {
                    told(format!("{remote}: {error}"));
                }
                continue;
            }
        };
        let what = format!("{remote}: {:?} of {} bytes", plan.operation, plan.size);
        let context = context.clone();
        let serve = move || serve(&context, request, mpa, &plan, waiting);
        if once {
            serve()?;
            told(format!("{what}: done"));
            return Ok(());
        }
        std::thread::spawn(move || match serve() {
            Ok(()) => log::info!("{what}: done"),
            Err(error) => log::warn!("{what}: {error}"),
        });
    }
}

/// One client, from accept to its end.
fn serve(
    context: &Context,
    request: ConnectionRequest,
    mpa: MpaOptions,
    plan: &Plan,
    waiting: Waiting,
) -> Result<(), ToolError> {
    let Waiting { patience, busy } = waiting;
    let pd = context.alloc_pd()?;
    let access = Access::READ_WRITE;
    let region = pd.register(plan.span.max(1) as usize, access)?;
    let receives = plan.receives();
    let sends = plan.depth + NOTES_IN_FLIGHT;
    let end = Endpoint::new(context, &pd, sends, receives + NOTES_IN_FLIGHT, patience)?;
    let mut end = end.busy(busy);
    let mut notes = Notes::new(&pd)?;
    match plan.operation {
        Operation::Read if plan.verify => fill(&region, plan)?,
        Operation::Write if plan.verify => spoil(&region, plan)?,
        Operation::Write | Operation::Read | Operation::Send => {}
    }
    let inbox = (receives > 0)
        .then(|| Inbox::new(&pd, &end, plan, receives))
        .transpose()?;
    if inbox.is_none() {
        notes.expect(&end)?;
    }
    let memory = region.remote(0..region.len())?;
    let options = AcceptOptions::default()
        .private_data(encode_answer(memory))
        .mpa(mpa);
    request.accept(&end.qp, options).wait(patience)?;
    let verdict = match (plan.figure, inbox) {
        (Figure::Bandwidth, None) => {
            bandwidth::serve_one_sided(&mut end, &mut notes, &region, plan)?
        }
        (Figure::Bandwidth, Some(inbox)) => {
            bandwidth::serve_sends(&mut end, &mut notes, &inbox, plan)?
        }
        (Figure::Latency, None) => latency::serve_one_sided(&mut end, &mut notes, &region, plan)?,
        (Figure::Latency, Some(inbox)) => latency::serve_sends(&mut end, &inbox)?,
    };
    notes.say(&end, verdict)?;
    // The client closes; its FIN is what ends a good run.
    end.wait_closed()
}

/// Writes the pattern over the whole span.
pub(super) fn fill(region: &MemoryRegion, plan: &Plan) -> Result<(), ToolError> {
    write_span(region, plan, Pattern::fill)
}

/// Writes anything but the pattern over the whole span, each byte of it: those that do not arrive are
/// seen when it is compared.
pub(super) fn spoil(region: &MemoryRegion, plan: &Plan) -> Result<(), ToolError> {
    write_span(region, plan, Pattern::spoil)
}

fn write_span(
    region: &MemoryRegion,
    plan: &Plan,
    bytes: impl Fn(&Pattern, u64, &mut [u8]),
) -> Result<(), ToolError> {
    let pattern = Pattern::new(plan.seed);
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < plan.span {
        let len = (plan.span - at).min(chunk.len() as u64) as usize;
        bytes(&pattern, at, &mut chunk[..len]);
        region.write(at as usize, &chunk[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Compares the first `bytes` of the span with the pattern.
pub(super) fn check(region: &MemoryRegion, plan: &Plan, bytes: u64) -> Result<Note, ToolError> {
    let pattern = Pattern::new(plan.seed);
    let bytes = bytes.min(plan.span);
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(chunk.len() as u64) as usize;
        region.read(at as usize, &mut chunk[..len])?;
        if let Some(position) = pattern.first_difference(at, &chunk[..len]) {
            return Ok(Note::Corrupt { position });
        }
        at += len as u64;
    }
    Ok(Note::Verified { bytes })
}

/// Receives for messages and notes alike, since either may meet any of them.
#[derive(Debug)]
pub(super) struct Inbox {
    memory: MemoryRegion,
    each: usize,
    count: u32,
}

impl Inbox {
    /// Posts `count` receives of the plan's message size, and room for notes.
    pub(super) fn new(
        pd: &ProtectionDomain,
        end: &Endpoint,
        plan: &Plan,
        count: u32,
    ) -> Result<Self, ToolError> {
        let each = (plan.size as usize).max(NOTE);
        let local = Access::LOCAL_WRITE;
        let inbox = Self {
            memory: pd.register(each * count as usize, local)?,
            each,
            count,
        };
        for index in 0..u64::from(count) {
            inbox.spoil(plan, index)?;
            inbox.expect(end, index)?;
        }
        Ok(inbox)
    }

    /// Has the receive that message number `number` goes to hold no byte of it, when messages are
    /// verified. Receives are posted again in the order in which they were used.
    pub(super) fn spoil(&self, plan: &Plan, number: u64) -> Result<(), ToolError> {
        if !plan.verify {
            return Ok(());
        }
        let (position, len) = plan.place(number);
        let mut bytes = vec![0; len as usize];
        Pattern::new(plan.seed).spoil(position, &mut bytes);
        let index = number % u64::from(self.count);
        Ok(self.memory.write(index as usize * self.each, &bytes)?)
    }

    pub(super) fn count(&self) -> u64 {
        self.count.into()
    }

    /// Posts receive number `index` (again).
    pub(super) fn expect(&self, end: &Endpoint, index: u64) -> Result<(), ToolError> {
        let at = index as usize * self.each;
        let sge = self.memory.slice(at..at + self.each)?;
        Ok(end.qp.post_recv(WorkRequest::recv(index, &[sge]))?)
    }

    /// The note that receive number `index` completed with.
    pub(super) fn note(&self, done: &rnic::WorkCompletion) -> Result<Note, ToolError> {
        control::read(&self.memory, done.wr_id as usize * self.each, done)
    }

    /// The bytes that receive number `index` completed with.
    pub(super) fn read(
        &self,
        done: &rnic::WorkCompletion,
        into: &mut [u8],
    ) -> Result<(), ToolError> {
        Ok(self.memory.read(done.wr_id as usize * self.each, into)?)
    }

    /// Its first bytes as a Send back.
    pub(super) fn slice(&self, index: u64, len: u32) -> Result<rnic::Sge, ToolError> {
        let at = index as usize * self.each;
        Ok(self.memory.slice(at..at + len as usize)?)
    }
}
