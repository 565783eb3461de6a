//! Captures that clients ask for: administrators only, since frames hold what others' programs send.

use rnic_engine::command::Command;
use rnic_ipc::capture::{Filter, KEPT_MAX};
use rnic_ipc::control::{Refusal, RefusalCode, Response};

use super::{ClientSession, Granted};
use crate::capture::Prepared;
use crate::clients::client::SessionState;
use crate::refuse;

impl ClientSession {
    pub(super) fn start_capture(&self, state: &mut SessionState, filter: Filter) -> Granted {
        let core = self.core();
        core.prm().may_administer(self.id())?;
        if state
            .capture
            .as_ref()
            .is_some_and(|capture| !capture.stopped)
        {
            return Err(refuse::refusal(
                RefusalCode::WrongState,
                "a capture asked, but one of this client runs: stop it first",
            ));
        }
        // One that was stopped and not read to its end.
        core.end_capture(state);
        let most = core.interface.frame_bytes.min(KEPT_MAX);
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
        state.capture = Some(live);
        let shown = core.shards.all_do(|| Command::AddCapture {
            number,
            filter,
            sink: Box::new(tap.clone()),
        });
        if let Err(refusal) = shown {
            core.end_capture(state);
            return Err(refusal);
        }
        log::info!("client {} captures {filter:?}", self.id());
        Ok((Response::Capture, vec![stream]))
    }

    /// The shards show nothing any more; the thread goes on with what was shown.
    pub(super) fn stop_capture(&self, state: &mut SessionState) -> Result<(), Refusal> {
        match &mut state.capture {
            Some(capture) => self.core().stop_capture(capture),
            None => Ok(()),
        }
    }
}
