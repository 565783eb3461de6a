//! One message at a time: how long it takes. Write and Send are ping-pongs (the time is that of
//! both ways, halved by nobody); a Read's time is until its data is there.

use std::time::{Duration, Instant};

use rnic::{MemoryRegion, RemoteMemory, WorkRequest, WrOpcode};

use super::bandwidth::Until;
use super::control::{Note, Notes, is_own_note};
use super::plan::{Operation, Plan};
use super::server::Inbox;
use crate::endpoint::{Endpoint, ToolError};
use crate::progress::Progress;
use crate::report::Samples;

/// Rounds before the first that counts.
pub(super) const WARM_UP: u64 = 100;

/// How often a spinning end looks for completions, beside the byte that it waits for.
const LOOK_EVERY: u32 = 64;

/// How often it lets others have its core, at first before it has waited at all: where daemons and
/// programs share cores, the daemon that it waits for may need this one.
const YIELD_EVERY: u32 = 16;

/// The client's side.
pub fn run(
    end: &mut Endpoint,
    notes: &mut Notes,
    region: &MemoryRegion,
    remote: RemoteMemory,
    plan: &Plan,
    until: Until,
    progress: &mut Progress,
) -> Result<(Samples, Note), ToolError> {
    let mut samples = Samples::default();
    let mut started = Instant::now();
    for round in 0.. {
        if round == WARM_UP {
            started = Instant::now();
        }
        let counted = round.saturating_sub(WARM_UP);
        let over = match until {
            Until::Messages(limit) => counted >= limit,
            Until::Elapsed(limit) => round >= WARM_UP && started.elapsed() >= limit,
        };
        if over {
            break;
        }
        let took = match plan.operation {
            Operation::Write => write_round(end, region, remote, plan, round)?,
            Operation::Send => send_round(end, notes, region, plan)?,
            Operation::Read => read_round(end, region, remote, plan)?,
        };
        if round >= WARM_UP {
            samples.record(took);
            progress.update(counted * u64::from(plan.size));
        }
    }
    if plan.operation == Operation::Send {
        // Only now: until here the receives were for messages.
        notes.expect(end)?;
    }
    notes.say(
        end,
        Note::Done {
            messages: samples.latency().map_or(0, |l| l.samples),
        },
    )?;
    loop {
        match notes.listen(end)? {
            Note::Credit { .. } => {}
            verdict => return Ok((samples, verdict)),
        }
    }
}

/// The byte that says which round's message arrived: its last one. Never 0, which is what the
/// memory holds at first.
fn mark(round: u64) -> u8 {
    (round % 255) as u8 + 1
}

/// Two halves of the region take turns, so that none is rewritten while its Write may still be
/// under way; what comes back goes to a third.
fn write_round(
    end: &mut Endpoint,
    region: &MemoryRegion,
    remote: RemoteMemory,
    plan: &Plan,
    round: u64,
) -> Result<Duration, ToolError> {
    let started = Instant::now();
    write_mark(end, region, remote, plan, round)?;
    await_mark(end, region, plan, round, &mut |_, _| Ok(false))?;
    Ok(started.elapsed())
}

/// Offset of the part that a round's Write is taken from. The part at 0 is the peer's to write.
fn source(plan: &Plan, round: u64) -> usize {
    (1 + (round % 2) as usize) * plan.size as usize
}

pub(super) fn write_mark(
    end: &Endpoint,
    region: &MemoryRegion,
    remote: RemoteMemory,
    plan: &Plan,
    round: u64,
) -> Result<(), ToolError> {
    let size = plan.size as usize;
    let from = source(plan, round);
    region.write(from + size - 1, &[mark(round)])?;
    let sge = region.slice(from..from + size)?;
    Ok(end
        .qp
        .post_send(WorkRequest::write(round, &[sge], remote))?)
}

/// Spins until the round's byte is there. What completed before is looked for while the peer works,
/// and not when the byte is there, which the peer waits for. `heard` is shown each completion; true
/// ends the wait.
pub(super) fn await_mark(
    end: &mut Endpoint,
    region: &MemoryRegion,
    plan: &Plan,
    round: u64,
    heard: &mut dyn FnMut(&Endpoint, &rnic::WorkCompletion) -> Result<bool, ToolError>,
) -> Result<bool, ToolError> {
    let last = plan.size as usize - 1;
    let mut spins = 0u32;
    let mut byte = [0];
    loop {
        // Polling also drives an engine that lives in this process, so it must not be rare there: it
        // sends what was posted, and brings the byte.
        if spins.is_multiple_of(LOOK_EVERY) || end.is_inline() {
            while let Some(done) = end.poll()? {
                if heard(end, &done)? {
                    return Ok(true);
                }
            }
        }
        region.read(last, &mut byte)?;
        if byte[0] == mark(round) {
            return Ok(false);
        }
        // Who drives the engine looks for frames all the while: a pause would only keep it from that.
        if !end.is_inline() {
            if spins.is_multiple_of(YIELD_EVERY) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        spins = spins.wrapping_add(1);
    }
}

fn send_round(
    end: &mut Endpoint,
    notes: &Notes,
    region: &MemoryRegion,
    plan: &Plan,
) -> Result<Duration, ToolError> {
    let size = plan.size as usize;
    let back = region.slice(size..2 * size)?;
    end.qp.post_recv(WorkRequest::recv(1, &[back]))?;
    let out = region.slice(0..size)?;
    let started = Instant::now();
    end.qp.post_send(WorkRequest::send(0, &[out]))?;
    loop {
        let done = end.completion()?;
        if done.opcode == WrOpcode::Recv && notes.heard(end, &done)?.is_none() {
            return Ok(started.elapsed());
        }
    }
}

fn read_round(
    end: &mut Endpoint,
    region: &MemoryRegion,
    remote: RemoteMemory,
    plan: &Plan,
) -> Result<Duration, ToolError> {
    let sge = region.slice(0..plan.size as usize)?;
    let started = Instant::now();
    end.qp.post_send(WorkRequest::read(0, &[sge], remote))?;
    loop {
        if end.completion()?.opcode == WrOpcode::Read {
            return Ok(started.elapsed());
        }
    }
}

/// The server's side of Writes (each answered by a Write) and Reads (nothing to do).
pub(super) fn serve_one_sided(
    end: &mut Endpoint,
    notes: &mut Notes,
    region: &MemoryRegion,
    plan: &Plan,
) -> Result<Note, ToolError> {
    if plan.operation == Operation::Read {
        notes.await_end(end)?;
        return Ok(Note::Finished);
    }
    for round in 0.. {
        let over = await_mark(end, region, plan, round, &mut |end, done| {
            Ok(notes.heard(end, done)?.is_some())
        })?;
        if over {
            break;
        }
        write_mark(end, region, plan.memory(), plan, round)?;
    }
    Ok(Note::Finished)
}

/// The server's side of Sends: each is sent back from where it arrived.
pub(super) fn serve_sends(end: &mut Endpoint, inbox: &Inbox) -> Result<Note, ToolError> {
    loop {
        let done = end.completion()?;
        match done.opcode {
            WrOpcode::Recv if done.solicited => {
                inbox.note(&done)?;
                return Ok(Note::Finished);
            }
            WrOpcode::Recv => {
                let sge = inbox.slice(done.wr_id, done.byte_len)?;
                end.qp.post_send(WorkRequest::send(done.wr_id, &[sge]))?;
            }
            // What was sent back is out: its memory can receive again.
            _ if !is_own_note(&done) => inbox.expect(end, done.wr_id)?,
            _ => {}
        }
    }
}
