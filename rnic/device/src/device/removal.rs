//! The end of clients: everything that one has is removed from the shards, the host and the PRM.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam::channel::RecvTimeoutError;
use rnic_engine::command::{Answer, Command};
use rnic_host::heap;
use rnic_host::ports::LocalPort;
use rnic_ipc::control::{QpState, Refusal};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::threads;
use rnic_prm::Step;

use super::core::Core;
use crate::capture::LiveCapture;
use crate::clients::client::{Client, SessionState};
use crate::runtime::{FIRST, To, WATCH_INTERVAL, log_refusal};

impl Core {
    /// Starts the thread that removes evicted clients, and watches the shards meanwhile.
    pub(crate) fn start_remover(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let evicted = self.clients.take_evicted();
        let core = self.clone();
        let thread = Builder::new().name("rnic-reaper".to_owned());
        threads::spawn(thread, move || {
            loop {
                match evicted.recv_timeout(WATCH_INTERVAL) {
                    Ok(client) => core.remove_evicted(client),
                    Err(RecvTimeoutError::Timeout) => core.shards.watch(core.interface.name()),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })
    }

    /// Removes an evicted client by a thread of its own, since its last request may take long.
    fn remove_evicted(self: &Arc<Self>, client: Arc<Client>) {
        let (core, evicted) = (self.clone(), client.clone());
        let remove = move || {
            evicted.close_session();
            core.remove_client(&evicted);
        };
        if let Err(error) = heap::start_thread("rnic-take-away", heap::STACK, remove) {
            log::error!(
                "no thread to take client {} away, it goes when it hangs up: {error}",
                client.id
            );
            client.close_session();
        }
    }

    /// Removes everything that a client has, after its last request. Once.
    pub(crate) fn remove_client(&self, client: &Client) {
        let mut state = client.lock_session();
        if std::mem::replace(&mut state.removed, true) {
            return;
        }
        let teardown = self.prm().client_gone(client.id);
        log::debug!(
            "client {}: removing {} objects",
            client.id,
            teardown.steps().len()
        );
        for step in teardown.steps() {
            self.take_step(step, &mut state);
        }
        self.end_capture(&mut state);
        if state.has_hello {
            let client = client.id;
            let removed = self.shards.all_do(|| Command::RemoveClient { client });
            log_refusal("a client", removed);
        }
        for driver in self.shards.drivers() {
            driver.kicks().remove(client.id);
        }
        self.prm().client_removed(teardown);
        self.clients.remove(client.id);
    }

    fn take_step(&self, step: &Step, state: &mut SessionState) {
        match step {
            Step::Listener(removal) => {
                let listener = *removal.listener();
                let unlistened = self.shards.all_do(|| Command::Unlisten { listener });
                log_refusal("a listener", unlistened);
                let at = LocalPort::new(*removal.transport(), *removal.local());
                self.interface.ports.unlistened(at);
            }
            Step::Qp(removal) => {
                self.leave_join(*removal.qp());
                log_refusal("a queue pair", self.shards.remove_qp(*removal.qp()));
            }
            Step::Region(revocation) => {
                let stag = *revocation.stag();
                let revoked = self.shards.all_do(|| Command::RemoveRegion { stag });
                log_refusal("a region", revoked);
                state.memory.remove(&stag.0);
            }
            Step::Srq(removal) => {
                let srq = *removal.srq();
                let remove = Command::RemoveSrq { srq };
                log_refusal(
                    "a shared receive queue",
                    self.shards.run(To::Shard(FIRST), remove),
                );
            }
            Step::Cq(removal) => {
                let cq = *removal.cq();
                let removed = self.shards.all_do(|| Command::RemoveCq { cq });
                log_refusal("a completion queue", removed);
            }
        }
    }

    /// The queue pairs of a client that have a connection, with their states.
    pub(crate) fn connected(&self, client: ClientId) -> Vec<(QpNum, QpState)> {
        let queue_pairs = self.prm().queue_pairs(client);
        let state = |qp| match self.shards.run(To::Qp(qp), Command::QueryQp { qp }) {
            Ok((Answer::QpState(state), _)) => Some((qp, state)),
            _ => None,
        };
        let has_connection = |(_, state): &(QpNum, QpState)| {
            use QpState::{Closing, Connecting, Rts, Terminate};
            matches!(state, Connecting | Rts | Closing | Terminate)
        };
        queue_pairs
            .into_iter()
            .filter_map(state)
            .filter(has_connection)
            .collect()
    }

    /// Has the shards show a client's capture nothing more.
    pub(crate) fn stop_capture(&self, capture: &mut LiveCapture) -> Result<(), Refusal> {
        if capture.stopped {
            return Ok(());
        }
        let number = capture.number;
        // Its buffers are freed here and not by a shard.
        self.shards.all_do(|| Command::RemoveCapture { number })?;
        capture.stopped = true;
        Ok(())
    }

    /// Ends a client's capture, if there is one; what it has not read yet is lost.
    pub(crate) fn end_capture(&self, state: &mut SessionState) {
        let Some(mut capture) = state.capture.take() else {
            return;
        };
        // A shard that has stopped has dropped its end.
        let _ = self.stop_capture(&mut capture);
        let number = capture.number;
        drop(capture);
        self.captures().end(number);
    }
}
