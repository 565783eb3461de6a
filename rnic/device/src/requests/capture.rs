//! Captures that clients ask for: administrators only, since frames hold what others' programs send.

use rnic_engine::command::Command;
use rnic_ipc::capture::{Filter, KEPT_MAX};
use rnic_ipc::control::{Refusal, RefusalCode, Response};

use super::{ClientSession, Granted};
use crate::capture::{LiveCapture, Prepared};
use crate::clients::client::Turn;
use crate::device::core::Core;
use crate::refuse;

impl ClientSession {
    pub(super) fn start_capture(&self, turn: &mut Turn, filter: Filter) -> Granted {
        let core = self.core();
        core.prm().may_administer(self.id())?;
        if turn
            .capture
            .as_ref()
            .is_some_and(|capture| !capture.stopped)
        {
            return Err(refuse::refusal(
                RefusalCode::WrongState,
                "a capture asked, but one of this client runs: stop it first",
            ));
        }
        // One that was stopped, and whose rest nobody read.
        core.end_capture(turn);
        let most = core.frame_bytes.min(KEPT_MAX);
        let kept = filter.snap.map_or(most, |snap| most.min(snap as usize));
        let filter = Filter {
            snap: u32::try_from(kept).ok(),
            ..filter
        };
        let prepared = Prepared::new(kept);
        let number = core.captures().begin(prepared.counts())?;
        let started = prepared.start(number).map_err(|error| {
            core.captures().end(number);
            refuse::host("a thread and a socket pair for a capture", error)
        });
        let (live, tap, stream) = started?;
        turn.capture = Some(live);
        let shown = core.shards.all_do(|| Command::AddCapture {
            number,
            filter,
            sink: Box::new(tap.clone()),
        });
        if let Err(refusal) = shown {
            core.end_capture(turn);
            return Err(refusal);
        }
        log::info!("client {} captures {filter:?}", self.id());
        Ok((Response::Capture, vec![stream]))
    }

    /// The shard shows nothing any more; the thread goes on with what was shown.
    pub(super) fn stop_capture(&self, turn: &mut Turn) -> Result<(), Refusal> {
        match &mut turn.capture {
            Some(capture) => self.core().stop_capture(capture),
            None => Ok(()),
        }
    }
}

impl Core {
    fn stop_capture(&self, capture: &mut LiveCapture) -> Result<(), Refusal> {
        if capture.stopped {
            return Ok(());
        }
        let number = capture.number;
        // Its buffers are freed here and not by a shard.
        self.shards.all_do(|| Command::RemoveCapture { number })?;
        capture.stopped = true;
        Ok(())
    }

    /// Ends a client's capture, if there is one, whatever nobody has read yet.
    pub(crate) fn end_capture(&self, turn: &mut Turn) {
        let Some(mut capture) = turn.capture.take() else {
            return;
        };
        // A shard that has stopped has dropped its end.
        let _ = self.stop_capture(&mut capture);
        let number = capture.number;
        drop(capture);
        self.captures().end(number);
    }
}
