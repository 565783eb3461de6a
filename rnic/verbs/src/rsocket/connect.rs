//! Connecting, and the outcome.

use std::net::SocketAddr;

use rnic::ConnectionEvent;
use rustix::io::Errno;

use super::bell::Watchers;
use super::socket::{Phase, Socket, State};
use super::stream::Stream;
use super::wire::Hello;
use crate::cm::net::{errno_of, unmapped, way_toward};
use crate::ffi::{Fail, Outcome};
use crate::process::Process;

impl Socket {
    /// Begins to connect to a peer.
    pub(crate) fn connect(&self, remote: SocketAddr) -> Outcome<()> {
        let (bound, options) = self.with(|state| match state.phase {
            Phase::Idle => {
                state.error = None;
                Ok((state.local, state.options.clone()))
            }
            Phase::Opening(..) => Err(Fail::from(Errno::ALREADY)),
            Phase::Open(_) => Err(Errno::ISCONN.into()),
            Phase::Listening(_) => Err(Errno::INVAL.into()),
        })?;
        let remote = unmapped(remote);
        let (session, local) = match bound {
            Some(local) if !local.ip().is_unspecified() => {
                let local = unmapped(local);
                (Process::current().session_at(local.ip())?, local)
            }
            _ => {
                let (session, own) = way_toward(remote)?;
                let port = bound.map_or(0, |bound| bound.port());
                (session, SocketAddr::new(own, port))
            }
        };
        let stream = Stream::prepare(&session, options.sizes())?;
        self.with(|state| {
            state.local = Some(local);
            state.remote = Some(remote);
        });
        self.open(stream, None, |stream| stream.connect(remote, local))
    }

    /// Begins a connection, of which this socket is told from its first event on.
    pub(super) fn open(
        &self,
        stream: Stream,
        hello: Option<Hello>,
        begin: impl FnOnce(&Stream) -> Outcome<()>,
    ) -> Outcome<()> {
        self.watch_stream(&stream)?;
        self.with(|state| {
            let watchers = stream.session().part::<Watchers>();
            watchers.watch_connection(stream.qp().num(), &state.bell);
            begin(&stream)?;
            state.phase = Phase::Opening(Box::new(stream), hello);
            Ok(())
        })
    }
}

impl State {
    /// What has come of a connection that is being made.
    pub(super) fn opening_news(&mut self) -> bool {
        let Phase::Opening(stream, hello) = &mut self.phase else {
            return false;
        };
        let begun = match stream.qp().take_event() {
            Ok(None) => return false,
            Ok(Some(ConnectionEvent::Established(established))) => {
                let said = hello.map_or_else(|| Hello::decode(&established.private_data), Ok);
                said.map_err(|why| Fail::of(Errno::PROTO, why))
            }
            Ok(Some(other)) => Err(failure(other).into()),
            Err(error) => Err(error.into()),
        };
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        match (phase, begun) {
            (Phase::Opening(mut stream, _), Ok(hello)) => {
                stream.begin(&hello);
                stream.progress();
                self.phase = Phase::Open(stream);
                // What happened meanwhile is an open one's.
                self.bell.ring_for_news();
            }
            (_, Err(fail)) => {
                log::info!("an rsocket's connection failed: {fail}");
                self.error = Some(fail.errno);
            }
            (other, Ok(_)) => self.phase = other,
        }
        true
    }

    /// Whether a connection has come about.
    pub(crate) fn connected(&mut self) -> Outcome<Option<isize>> {
        Ok(self.stream()?.map(|_| 0))
    }
}

fn failure(event: ConnectionEvent) -> Errno {
    match event {
        ConnectionEvent::Rejected { .. } => Errno::CONNREFUSED,
        ConnectionEvent::ConnectFailed { reason, .. }
        | ConnectionEvent::Disconnected { reason, .. } => errno_of(reason),
        ConnectionEvent::Established(_) => Errno::ISCONN,
        _ => Errno::CONNABORTED,
    }
}
