//! The active end: connects with its plan, measures, reports.

use std::net::SocketAddr;

use rnic::{Access, ConnectOptions, Context, RemoteMemory, WcStatus};
use serde::Serialize;

use super::bandwidth::{self, Span};
use super::control::{NOTES_IN_FLIGHT, Note, Notes};
use super::latency;
use super::plan::{Figure, Operation, Plan, decode_answer};
use super::server::{fill, spoil};
use crate::endpoint::{Endpoint, ToolError, Waiting};
use crate::progress::Progress;
use crate::report::{Goodput, Latency};

/// What a run ended with.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub operation: Operation,
    pub figure: Figure,
    /// Bytes of a message.
    pub size: u32,
    /// Messages outstanding.
    pub depth: u32,
    /// With [`Figure::Bandwidth`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
    /// With [`Figure::Latency`], in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Bytes that the receiving end compared with the pattern, all equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
}

/// Connects to `remote` and runs `plan` there.
pub fn run(
    context: &Context,
    remote: SocketAddr,
    options: ConnectOptions,
    plan: Plan,
    span: Span,
    waiting: Waiting,
    progress: &mut Progress,
) -> Result<Outcome, ToolError> {
    plan.check().map_err(ToolError::Usage)?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = pd.register(plan.span.max(1) as usize, access)?;
    let plan = plan.with_memory(region.remote(0..region.len())?);
    let sends = plan.depth + NOTES_IN_FLIGHT;
    let Waiting { patience, busy } = waiting;
    let end = Endpoint::new(context, &pd, sends, NOTES_IN_FLIGHT + 2, patience)?;
    let mut end = end.busy(busy);
    let mut notes = Notes::new(&pd)?;
    if !(plan.figure == Figure::Latency && plan.operation == Operation::Send) {
        notes.expect(&end)?;
    }
    match plan.operation {
        Operation::Read if plan.verify => spoil(&region, &plan)?,
        Operation::Write | Operation::Send if plan.figure == Figure::Bandwidth => {
            fill(&region, &plan)?;
        }
        Operation::Write | Operation::Read | Operation::Send => {}
    }
    let mpa = options.mpa;
    let options = options.private_data(plan.encode());
    let established = end.qp.connect(remote, options).wait(patience)?;
    crate::mpa::note_refused(&mpa, &established.mpa);
    let memory: RemoteMemory = decode_answer(&established.private_data, plan.span)
        .map_err(|error| ToolError::Peer(error.to_string()))?;

    let mut outcome = Outcome {
        operation: plan.operation,
        figure: plan.figure,
        size: plan.size,
        depth: plan.depth,
        goodput: None,
        latency: None,
        verified_bytes: None,
    };
    let verdict = match plan.figure {
        Figure::Bandwidth => {
            let (goodput, verdict) =
                bandwidth::run(&mut end, &mut notes, &region, memory, &plan, span, progress)?;
            outcome.goodput = Some(goodput);
            verdict
        }
        Figure::Latency => {
            let (samples, verdict) = latency::run(
                &mut end, &mut notes, &region, memory, &plan, span.until, progress,
            )?;
            outcome.latency = samples.latency();
            verdict
        }
    };
    progress.finish();
    end.disconnect()?;
    match verdict {
        Note::Verified { bytes } => outcome.verified_bytes = Some(bytes),
        Note::Finished => {}
        Note::Corrupt { position } => return Err(ToolError::Corrupt { position }),
        other => return Err(ToolError::Peer(format!("the server ended with {other:?}"))),
    }
    Ok(outcome)
}

/// The exit status that tells a lost connection from wrong data.
pub fn exit_status(error: &ToolError) -> u8 {
    match error {
        ToolError::Usage(_) => 2,
        ToolError::Corrupt { .. } => 3,
        ToolError::Work {
            status: WcStatus::WorkRequestFlushed,
            ..
        } => 4,
        ToolError::Rnic(
            rnic::Error::DaemonGone
            | rnic::Error::SessionEnded(_)
            | rnic::Error::Disconnected { .. },
        ) => 4,
        _ => 1,
    }
}
