//! Listening, and answering the peers that ask.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rnic_ipc::control::{MpaOptions, Request, Response};
use rnic_ipc::id::ListenerId;

use crate::context::{Context, Inner};
use crate::error::Error;
use crate::events::Asked;
use crate::link::unexpected;
use crate::queue_pair::{Established, QueuePair};
use crate::wait::Deadline;

/// A local address and port on which peers may connect. Dropping it resets requests that wait.
#[derive(Debug)]
pub struct Listener {
    context: Arc<Inner>,
    id: ListenerId,
    local: SocketAddr,
}

impl Listener {
    /// Listens on an address of the RNIC's interface (no wildcard); port 0 lets the kernel choose.
    /// `backlog`: how many requests may wait to be answered.
    pub fn bind(context: &Context, local: SocketAddr, backlog: u32) -> Result<Self, Error> {
        let context = context.inner();
        context.events().boxes().begin_listen();
        let reply = context.request(&Request::Listen { local, backlog }, &[]);
        let granted = match &reply {
            Ok((Response::Listening { listener, .. }, _)) => Some(*listener),
            _ => None,
        };
        context.events().boxes().end_listen(granted);
        match reply? {
            (Response::Listening { listener, local }, _) => Ok(Self {
                context: context.clone(),
                id: listener,
                local,
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The address with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a peer's request. With no time at all takes one that is there.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DaemonGone`].
    pub fn accept_request(&self, timeout: Duration) -> Result<ConnectionRequest, Error> {
        let asked = self.context.events().wait(
            &self.context,
            Deadline::after(timeout),
            "a connection request",
            |boxes| boxes.listeners.get_mut(&self.id)?.pop_front(),
        )?;
        Ok(self.request(asked))
    }

    pub(crate) fn request(&self, asked: Asked) -> ConnectionRequest {
        ConnectionRequest {
            context: self.context.clone(),
            asked,
            answered: false,
        }
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.context
    }

    pub(crate) fn id(&self) -> ListenerId {
        self.id
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.context
            .give_back(&Request::Unlisten { listener: self.id });
        self.context.events().boxes().listeners.remove(&self.id);
    }
}

/// How to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptOptions {
    /// For the peer: at most 512 bytes, 4 less with MPA revision 2.
    pub private_data: Vec<u8>,
    /// Our limits.
    pub mpa: MpaOptions,
    /// How long to wait for the outcome.
    pub timeout: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            mpa: MpaOptions::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// A peer that wants to connect. Dropping it unanswered rejects the peer.
#[derive(Debug)]
pub struct ConnectionRequest {
    context: Arc<Inner>,
    asked: Asked,
    answered: bool,
}

impl ConnectionRequest {
    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.asked.private_data
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.asked.remote
    }

    /// The address that the peer connected to.
    pub fn local(&self) -> SocketAddr {
        self.asked.local
    }

    /// What the peer asked for; `ird` and `ord` are the peer's.
    pub fn mpa(&self) -> MpaOptions {
        self.asked.mpa
    }

    /// Takes the connection with an idle queue pair of the same context and waits until it is
    /// there. Post the receives that the peer's first Sends need before.
    ///
    /// # Errors
    /// As for [`QueuePair::connect`].
    pub fn accept(
        self,
        qp: &QueuePair,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Established, Error> {
        let private_data = private_data.to_vec();
        self.accept_with(
            qp,
            AcceptOptions {
                private_data,
                timeout,
                ..AcceptOptions::default()
            },
        )
    }

    /// As [`Self::accept`], with limits of our own.
    pub fn accept_with(self, qp: &QueuePair, options: AcceptOptions) -> Result<Established, Error> {
        let deadline = Deadline::after(options.timeout);
        self.start_accept(qp, options)?;
        qp.wait_established(deadline)
    }

    /// Takes the connection; the outcome comes by [`QueuePair::take_event`]. `timeout` is not used.
    pub fn start_accept(mut self, qp: &QueuePair, options: AcceptOptions) -> Result<(), Error> {
        let AcceptOptions {
            private_data,
            mpa,
            timeout: _,
        } = options;
        let request = self.asked.request;
        let accept = Request::Accept {
            request,
            qp: qp.num(),
            mpa,
            private_data,
        };
        qp.begin_connection(&accept)?;
        self.answered = true;
        Ok(())
    }

    /// Sends the peer away, with a word for it.
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), Error> {
        self.answered = true;
        let private_data = private_data.to_vec();
        self.context.request_done(&Request::Reject {
            request: self.asked.request,
            private_data,
        })
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if !self.answered {
            let request = self.asked.request;
            // The peer may have gone meanwhile, and the request with it: that is fine here.
            let reject = Request::Reject {
                request,
                private_data: Vec::new(),
            };
            if let Err(error) = self.context.request_done(&reject) {
                log::debug!("rejecting an unanswered request: {error}");
            }
        }
    }
}
