//! Listening, and answering the peers that ask.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rnic_ipc::control::{
    ListenSpec, MpaOptions, Refusal, RefusalCode, Request, Response, Transport,
};
use rnic_ipc::id::ListenerId;

use crate::addresses::first_of;
use crate::context::{Context, Inner, same_context};
use crate::error::Error;
use crate::events::{Inboxes, PeerRequest};
use crate::link::unexpected;
use crate::queue_pair::QueuePair;
use crate::setters::setters;
use crate::waits::{Accepting, Connecting};

/// How many ports of the kernel's choice are tried on all addresses.
const PORT_ATTEMPTS: u32 = 8;

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenOptions {
    /// How many requests may wait to be answered, for each address.
    pub backlog: u32,
    /// What DDP goes over. The port numbers of TCP and of SCTP are apart.
    pub transport: Transport,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 16,
            transport: Transport::Tcp,
        }
    }
}

setters! {
    ListenOptions {
        backlog: u32,
        transport: Transport,
    }
}

/// A local address and port on which peers may connect, or all addresses of the device with one port.
/// Dropping it rejects requests that wait. `drop` blocks for an answer of the RNIC to each address and each such request.
#[derive(Debug)]
pub struct Listener {
    context: Arc<Inner>,
    local: SocketAddr,
    /// One for each address.
    endpoints: Vec<LocalEndpoint>,
}

/// An address where the RNIC listens.
#[derive(Clone, Copy, Debug)]
struct LocalEndpoint {
    id: ListenerId,
    local: SocketAddr,
}

impl Context {
    /// Listens on an address of the device; port 0 lets the kernel choose. The address `0.0.0.0` means
    /// each IPv4 address that the device has now, and `[::]` each address of both families: each is a
    /// listener of its own to the RNIC and its limits. Where `local` names several addresses, it is the first that can
    /// be used; a name is resolved in the call.
    ///
    /// # Errors
    /// [`Error::Refused`]: the address is not the device's, or the port is in use. [`Error::Address`].
    pub fn listen(
        &self,
        local: impl ToSocketAddrs,
        options: ListenOptions,
    ) -> Result<Listener, Error> {
        first_of(local, |local| Listener::bind_to(self, local, options))
    }
}

impl Listener {
    fn bind_to(
        context: &Context,
        local: SocketAddr,
        options: ListenOptions,
    ) -> Result<Self, Error> {
        if !local.ip().is_unspecified() {
            let mut listener = Self::nowhere(context, local);
            listener.add(local, options)?;
            listener.local = listener.endpoints[0].local;
            return Ok(listener);
        }
        let device = context.device_info()?;
        let of_family = |address: &IpAddr| address.is_ipv4() || local.is_ipv6();
        let addresses: Vec<_> = device.addresses.into_iter().filter(of_family).collect();
        let mut attempts = 1;
        loop {
            match Self::on_all(context, local, &addresses, options) {
                // The port that the kernel chose for the first address is taken on another.
                Err(Error::Refused(refusal))
                    if refusal.code == RefusalCode::PortInUse
                        && local.port() == 0
                        && attempts < PORT_ATTEMPTS =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(error),
                Ok(listener) if listener.endpoints.is_empty() => {
                    return Err(Error::Refused(Refusal {
                        code: RefusalCode::AddressNotLocal,
                        message: format!(
                            "all addresses ({local}) asked, but interface {} has none of this family: \
                             give it one, or name another device",
                            device.interface
                        ),
                    }));
                }
                Ok(listener) => return Ok(listener),
            }
        }
    }

    /// Listens with one port on those of the addresses that can be used.
    fn on_all(
        context: &Context,
        wildcard: SocketAddr,
        addresses: &[IpAddr],
        options: ListenOptions,
    ) -> Result<Self, Error> {
        let mut listener = Self::nowhere(context, wildcard);
        for address in addresses {
            match listener.add(SocketAddr::new(*address, listener.local.port()), options) {
                Ok(port) => listener.local.set_port(port),
                // It went meanwhile.
                Err(Error::Refused(refusal)) if refusal.code == RefusalCode::AddressNotLocal => {
                    log::warn!("not listening on {address}: {refusal}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(listener)
    }

    fn nowhere(context: &Context, local: SocketAddr) -> Self {
        Self {
            context: context.inner().clone(),
            local,
            endpoints: Vec::new(),
        }
    }

    /// Listens on one more address; the port.
    fn add(&mut self, local: SocketAddr, options: ListenOptions) -> Result<u16, Error> {
        let inboxes = || self.context.events().inboxes();
        inboxes().begin_listen();
        let reply = self.context.request(
            &Request::Listen(ListenSpec {
                local,
                backlog: options.backlog,
                transport: options.transport,
            }),
            &[],
        );
        let granted = match &reply {
            Ok((Response::Listening { listener, .. }, _)) => Some(*listener),
            _ => None,
        };
        inboxes().end_listen(granted);
        match reply? {
            (Response::Listening { listener, local }, _) => {
                let id = listener;
                self.endpoints.push(LocalEndpoint { id, local });
                Ok(local.port())
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The address that was asked for, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Each address where peers may connect: one, or all of the device's.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.endpoints.iter().map(|it| it.local)
    }

    /// Their numbers, by which [`crate::EventSources`] names them.
    pub fn ids(&self) -> impl Iterator<Item = ListenerId> + '_ {
        self.endpoints.iter().map(|it| it.id)
    }

    /// Waits for a peer's request.
    pub fn accept(&self) -> Accepting<'_> {
        Accepting::new(self)
    }

    /// The request that has waited longest, on whichever address: the RNIC numbers them as they come.
    pub(crate) fn take(&self, inboxes: &mut Inboxes) -> Option<PeerRequest> {
        let first = |id: &ListenerId| Some(inboxes.listeners.get(id)?.front()?.request);
        let waiting = self.endpoints.iter().filter(|it| first(&it.id).is_some());
        let id = waiting.min_by_key(|it| first(&it.id))?.id;
        inboxes.listeners.get_mut(&id)?.pop_front()
    }

    pub(crate) fn request(&self, asked: PeerRequest) -> ConnectionRequest {
        ConnectionRequest {
            context: self.context.clone(),
            asked,
            answered: false,
        }
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.context
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for LocalEndpoint { id, .. } in &self.endpoints {
            self.context.give_back(&Request::Unlisten { listener: *id });
            let mut waiting = None;
            self.context
                .forget(|inboxes| waiting = inboxes.listeners.remove(id));
            for asked in waiting.into_iter().flatten() {
                self.context.turn_away(asked.request);
            }
        }
    }
}

/// How to accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcceptOptions {
    /// For the peer: at most 512 bytes, 4 less with MPA revision 2.
    pub private_data: Vec<u8>,
    /// Our limits.
    pub mpa: MpaOptions,
}

setters! {
    AcceptOptions {
        private_data: impl Into<Vec<u8>>,
        mpa: MpaOptions,
    }
}

/// A peer that wants to connect. Dropping it unanswered rejects the peer: one request to the RNIC, whose answer `drop`
/// waits for.
#[derive(Debug)]
pub struct ConnectionRequest {
    context: Arc<Inner>,
    asked: PeerRequest,
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

    /// Takes the connection with an idle queue pair of the same context. Post the receives that the peer's first Sends
    /// need before.
    pub fn accept(self, qp: &QueuePair, options: AcceptOptions) -> Connecting<'_> {
        Connecting::new(qp, self.begin_to_accept(qp, options))
    }

    fn begin_to_accept(mut self, qp: &QueuePair, options: AcceptOptions) -> Result<(), Error> {
        let AcceptOptions { private_data, mpa } = options;
        same_context(
            (qp.context(), "the queue pair"),
            (&self.context, "the connection request"),
        )?;
        let request = self.asked.request;
        let accept = Request::Accept {
            request,
            qp: qp.num(),
            mpa,
            private_data,
        };
        qp.begin_connection(&accept, |response| match response {
            Response::Done => Ok(self.asked.local),
            other => Err(unexpected(&other)),
        })?;
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
            self.context.turn_away(self.asked.request);
        }
    }
}
