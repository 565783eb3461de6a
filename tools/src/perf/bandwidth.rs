//! Many messages outstanding: how many bytes of payload a second.

use std::time::{Duration, Instant};

use rnic::{MemoryRegion, RemoteMemory, Sge, WorkRequest, WrOpcode};

use super::control::{Note, Notes, is_own_note};
use super::plan::{Operation, Plan};
use super::server::{Inbox, check};
use super::turns::Turns;
use crate::endpoint::{Endpoint, ToolError};
use crate::pattern::Pattern;
use crate::progress::Progress;
use crate::report::Goodput;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many messages.
    Messages(u64),
    /// After so long.
    Elapsed(Duration),
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub until: Until,
    /// In [intervals](Turns) of so long: of bandwidth only.
    pub turn: Option<Duration>,
}

/// Bytes of messages between two looks at the clock, which costs as much as a short message.
const UNTIMED: u32 = 65_536;
/// And messages, at the most.
const UNTIMED_MESSAGES: u32 = 16;
/// The `wr_id` of the Read behind all messages of a turn.
const PROOF: u64 = 1 << 62;

/// The client's side: posts messages until the end, then waits for the server's verdict.
pub fn run(
    end: &mut Endpoint,
    notes: &mut Notes,
    region: &MemoryRegion,
    remote: RemoteMemory,
    plan: &Plan,
    span: Span,
    progress: &mut Progress,
) -> Result<(Goodput, Note), ToolError> {
    let mut sender = Sender {
        plan: *plan,
        remote,
        posted: 0,
        completed: 0,
        bytes: 0,
        credits: if plan.operation == Operation::Send {
            2 * u64::from(plan.depth)
        } else {
            u64::MAX
        },
    };
    let mut turns = Turns::begin(span.turn)?;
    let (mut bytes, mut messages) = (0, 0);
    loop {
        let before = (sender.bytes, sender.posted);
        let over = sender.take_turn(end, notes, region, span.until, &turns, progress)?;
        if turns.counts() {
            bytes += sender.bytes - before.0;
            messages += sender.posted - before.1;
        }
        if over {
            break;
        }
        sender.prove(end, notes)?;
        turns.go_on()?;
    }
    // A Write or Send is complete when it is handed to TCP: only the server knows when it arrived.
    // Its answer to this Send, which is delivered after them, ends the time that counts. But not
    // the time that it takes to compare: without `verify`, it answers at once.
    notes.say(
        end,
        Note::Done {
            messages: sender.posted,
        },
    )?;
    let arrived = loop {
        let done = end.completion()?;
        match notes.heard(end, &done)? {
            Some(Note::Credit { .. }) | None => {}
            Some(Note::Finished) => break turns.worked(Instant::now()),
            Some(other) => return Err(unexpected(other)),
        }
    };
    let goodput = Goodput::new(bytes, messages, arrived);
    if !plan.verify {
        return Ok((goodput, Note::Finished));
    }
    let verdict = match (plan.operation, notes.listen(end)?) {
        // What was Read is compared here.
        (Operation::Read, Note::Verified { .. }) => check(region, plan, sender.bytes)?,
        (_, verdict) => verdict,
    };
    Ok((goodput, verdict))
}

fn unexpected(note: Note) -> ToolError {
    ToolError::Peer(format!(
        "the server said {note:?}, which does not belong here"
    ))
}

/// The messages on their way.
struct Sender {
    plan: Plan,
    remote: RemoteMemory,
    posted: u64,
    completed: u64,
    bytes: u64,
    /// Receives that the server is known to have.
    credits: u64,
}

impl Sender {
    /// Posts messages until the turn or the run is over, and waits until they have completed. Whether it
    /// was the run.
    fn take_turn(
        &mut self,
        end: &mut Endpoint,
        notes: &Notes,
        region: &MemoryRegion,
        until: Until,
        turns: &Turns,
        progress: &mut Progress,
    ) -> Result<bool, ToolError> {
        let (mut posting, mut over) = (true, false);
        while posting || self.completed < self.posted {
            while posting && self.may_post() {
                self.post(end, region)?;
                over = self.is_over(until, turns);
                let handed_over = self.is_timed() && turns.is_over(Instant::now());
                posting = !over && !handed_over;
            }
            let done = end.completion()?;
            self.completed(end, notes, &done)?;
            progress.update(self.bytes);
        }
        Ok(over)
    }

    fn is_over(&self, until: Until, turns: &Turns) -> bool {
        match until {
            Until::Messages(limit) => self.posted >= limit,
            Until::Elapsed(limit) => self.is_timed() && turns.worked(Instant::now()) >= limit,
        }
    }

    /// Whether to read the clock after this message.
    fn is_timed(&self) -> bool {
        let untimed = (UNTIMED / self.plan.size.max(1)).clamp(1, UNTIMED_MESSAGES);
        self.posted.is_multiple_of(u64::from(untimed))
    }

    /// Waits until all messages have arrived: Reads nothing, behind them.
    fn prove(&mut self, end: &mut Endpoint, notes: &Notes) -> Result<(), ToolError> {
        end.qp
            .post_send(WorkRequest::read(PROOF, &[], self.remote))?;
        loop {
            let done = end.completion()?;
            if done.opcode == WrOpcode::Read && done.wr_id == PROOF {
                return Ok(());
            }
            self.completed(end, notes, &done)?;
        }
    }

    fn may_post(&self) -> bool {
        self.posted - self.completed < u64::from(self.plan.depth) && self.posted < self.credits
    }

    fn post(&mut self, end: &Endpoint, region: &MemoryRegion) -> Result<(), ToolError> {
        let (offset, len) = self.plan.place(self.posted);
        let from = offset as usize;
        let sge: [Sge; 1] = [region.slice(from..from + len as usize)?];
        let remote = self.remote.offset(offset);
        let work = match self.plan.operation {
            Operation::Write => WorkRequest::write(self.posted, &sge, remote),
            Operation::Read => WorkRequest::read(self.posted, &sge, remote),
            Operation::Send => WorkRequest::send(self.posted, &sge),
        };
        end.qp.post_send(work)?;
        self.posted += 1;
        Ok(())
    }

    fn completed(
        &mut self,
        end: &Endpoint,
        notes: &Notes,
        done: &rnic::WorkCompletion,
    ) -> Result<(), ToolError> {
        match notes.heard(end, done)? {
            Some(Note::Credit { messages }) => self.credits = self.credits.saturating_add(messages),
            Some(other) => return Err(unexpected(other)),
            None if is_own_note(done) || done.opcode == WrOpcode::Recv => {}
            None => {
                self.completed += 1;
                self.bytes += u64::from(self.plan.place(done.wr_id).1);
            }
        }
        Ok(())
    }
}

/// The server's side of Writes and Reads: nothing to do but wait for the end, and compare.
pub(super) fn serve_one_sided(
    end: &mut Endpoint,
    notes: &mut Notes,
    region: &MemoryRegion,
    plan: &Plan,
) -> Result<Note, ToolError> {
    let messages = match notes.await_end(end)? {
        Note::Done { messages } => messages,
        other => return Err(unexpected(other)),
    };
    if !plan.verify {
        return Ok(Note::Finished);
    }
    notes.say(end, Note::Finished)?;
    match plan.operation {
        Operation::Write => check(region, plan, messages.saturating_mul(u64::from(plan.size))),
        // The client compares what it Read.
        Operation::Read | Operation::Send => Ok(Note::Verified { bytes: 0 }),
    }
}

/// The server's side of Sends: receives, compares, posts again and says so.
pub(super) fn serve_sends(
    end: &mut Endpoint,
    notes: &mut Notes,
    inbox: &Inbox,
    plan: &Plan,
) -> Result<Note, ToolError> {
    let pattern = Pattern::new(plan.seed);
    let mut bytes = vec![0; plan.size as usize];
    let (mut messages, mut again) = (0, 0);
    let mut verdict = None;
    let mut verified = 0;
    loop {
        let done = end.completion()?;
        if done.opcode != WrOpcode::Recv {
            continue;
        }
        if done.solicited {
            let Note::Done { messages: sent } = inbox.note(&done)? else {
                return Err(ToolError::Peer(
                    "the client said what only a server says".into(),
                ));
            };
            if !plan.verify {
                return Ok(Note::Finished);
            }
            notes.say(end, Note::Finished)?;
            let missing = (sent != messages).then(|| Note::Corrupt {
                position: plan.place(messages).0,
            });
            let verdict = verdict.or(missing);
            return Ok(verdict.unwrap_or(Note::Verified { bytes: verified }));
        }
        let (position, len) = plan.place(messages);
        if plan.verify && verdict.is_none() {
            let bytes = &mut bytes[..len as usize];
            inbox.read(&done, bytes)?;
            let bad = pattern.first_difference(position, bytes);
            verdict = bad
                .or((done.byte_len != len).then_some(position))
                .map(|position| Note::Corrupt { position });
            verified += u64::from(len);
        }
        inbox.spoil(plan, messages + inbox.count())?;
        messages += 1;
        again += 1;
        inbox.expect(end, done.wr_id)?;
        if again == plan.depth {
            notes.say(
                end,
                Note::Credit {
                    messages: u64::from(again),
                },
            )?;
            again = 0;
        }
    }
}
