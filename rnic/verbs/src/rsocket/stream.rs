//! A connected rsocket: the queue pair, its memory, and what goes each way.
//!
//! Data goes by RDMA Write from the send ring into the peer's receive ring, a Send of four bytes tells of
//! it. Nothing here waits, and nothing makes progress but in calls of the program.

mod ending;
mod idle;
mod mapped;
mod sizes;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;

use rnic::{
    Access, CompletionQueue, MemoryRegion, QpConfig, QueuePair, RefusalCode, WcStatus,
    WorkCompletion, WorkRequest,
};
use rustix::io::Errno;

use super::flow::{Broken, Control, Receiver, Sender};
use super::iomap::Iomap;
use super::wire::{Entry, Hello, Mapped, Message, TARGETS};
use crate::ffi::Outcome;
use crate::process::Process;
use crate::session::Session;
use crate::shared::shared;
use idle::Quiet;
use sizes::SPARE_RECEIVES;
pub(crate) use sizes::Sizes;
use work::{Work, message_of, read_stable, remote};

/// Completions that are taken at once.
const BATCH: usize = 32;

/// Bytes that a work request carries itself: an entry of a table.
const INLINE: u32 = 64;

/// Of peers' RDMA Reads there are none but the one by which some begin a connection.
const READS: u16 = 1;

/// Looks at what has completed, one after the other, in which a peer may have more and more to tell and
/// nothing that helps the call. The call ends then, or waits; what is left is the next look's.
pub(crate) const LOOKS: usize = 4;

/// Why nothing more comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed, or both sides did.
    Closed,
    Failed(Errno),
}

pub(crate) struct Stream {
    qp: QueuePair,
    cq: CompletionQueue,
    session: Arc<Session>,
    /// The send ring, then a place of four bytes for each receive.
    own: MemoryRegion,
    inbox_at: usize,
    receives: u32,
    /// What the peer writes to: the receive ring, then the table of targets, then that of mapped memory.
    open: MemoryRegion,
    targets_at: usize,
    sizes: Sizes,
    receiver: Receiver,
    /// What the peer said; from then on there are messages.
    peer: Option<Peer>,
    control: Control,
    quiet: Quiet,
    /// A message that waits until one may go.
    farewell: Option<Message>,
    pub(crate) iomap: Iomap,
    /// What this side still does.
    reads: bool,
    writes: bool,
    /// What the other side still does.
    peer_writes: bool,
    end: Option<End>,
    /// The program was notified of a failure, once, as with sockets.
    failure_told: bool,
}

/// The other end.
struct Peer {
    sender: Sender,
    /// Its table of targets, and the entry that is the next to be written.
    targets: Entry,
    next_target: u32,
    iomap_entries: u16,
}

impl Stream {
    /// Makes what a connection needs, with its receives posted.
    pub(crate) fn prepare(session: &Arc<Session>, wanted: Sizes) -> Outcome<Self> {
        let sizes = wanted.within(session.info()?.max_queue_depth)?;
        let receives = u32::from(sizes.credits) + SPARE_RECEIVES;
        let send_queue = u32::from(sizes.send_queue);
        let (_, pd) = shared(session)?;
        let cq = session.rnic().create_cq(send_queue + receives)?;
        let config = QpConfig::default()
            .sq_depth(send_queue)
            .rq_depth(receives)
            .max_sge(1)
            .max_inline(INLINE)
            .signal_all(false);
        let qp = pd.rnic().create_qp(&cq, &cq, config)?;
        let inbox_at = sizes.send as usize;
        let own = qp.register(
            inbox_at + receives as usize * Message::BYTES,
            Access::LOCAL_WRITE,
        )?;
        // Entries of tables begin at a multiple of 8.
        let targets_at = (sizes.receive as usize).next_multiple_of(8);
        let tables = TARGETS * Entry::BYTES + usize::from(sizes.iomap) * Mapped::BYTES;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let open = qp.register(targets_at + tables, written)?;
        let stream = Self {
            receiver: Receiver::new(sizes.receive / 2, sizes.credits),
            qp,
            cq,
            session: session.clone(),
            own,
            inbox_at,
            receives,
            open,
            targets_at,
            sizes,
            peer: None,
            control: Control::default(),
            quiet: Quiet::new(),
            farewell: None,
            iomap: Iomap::default(),
            reads: true,
            writes: true,
            peer_writes: true,
            end: None,
            failure_told: false,
        };
        for place in 0..receives {
            stream.post_receive(place)?;
        }
        Ok(stream)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// What the peer is told when the connection is made.
    pub(crate) fn hello(&self) -> Hello {
        let at = |offset: usize, length: u32| Entry {
            addr: self.open.addr() + offset as u64,
            key: self.open.stag(),
            length,
        };
        Hello {
            credits: self.sizes.credits,
            targets: at(self.targets_at, TARGETS as u32),
            iomap_entries: self.sizes.iomap,
            buffer: at(0, self.sizes.receive / 2),
        }
    }

    pub(crate) fn mpa() -> rnic::MpaOptions {
        rnic::MpaOptions {
            ird: READS,
            ord: READS,
            ..rnic::MpaOptions::default()
        }
    }

    /// The connection is there, and the peer has said `hello`.
    pub(crate) fn begin(&mut self, hello: &Hello) {
        let slots = u32::from(self.sizes.send_queue) - Control::SLOTS;
        self.peer = Some(Peer {
            sender: Sender::new(hello, self.sizes.send, slots),
            targets: hello.targets,
            next_target: 1,
            iomap_entries: hello.iomap_entries,
        });
    }

    fn post_receive(&self, place: u32) -> Outcome<()> {
        let at = self.inbox_at + place as usize * Message::BYTES;
        let sge = self.own.slice(at..at + Message::BYTES)?;
        let work = WorkRequest::recv(Work::Receive(place).id(), std::slice::from_ref(&sge));
        Ok(self.qp.post_recv(work)?)
    }

    /// Takes up what has completed, and tells the peer what it is to know. Whether anything was new; there
    /// may be more then.
    pub(crate) fn progress(&mut self) -> bool {
        if self.peer.is_none() {
            return false;
        }
        let mut any = false;
        let mut completions = [WorkCompletion::default(); BATCH];
        // What comes meanwhile is the next look's.
        for _ in 0..(self.cq.depth() as usize).div_ceil(BATCH) {
            match self.cq.poll(&mut completions) {
                Ok(count) => {
                    any |= count > 0;
                    for completion in &completions[..count] {
                        self.completed(completion);
                    }
                    if count < BATCH {
                        break;
                    }
                }
                Err(error) => {
                    log::info!("an rsocket's completion queue: {error}");
                    any |= self.end.is_none();
                    self.fail(Errno::IO);
                    break;
                }
            }
        }
        self.tell_peer();
        self.tell_mapped();
        self.quiet.broken |= any;
        any
    }

    fn completed(&mut self, completion: &WorkCompletion) {
        let success = completion.status == WcStatus::Success;
        let Some(peer) = &mut self.peer else { return };
        match Work::of(completion.wr_id) {
            Work::Receive(place) => {
                if success && let Err(Broken(why)) = self.received(place, completion.byte_len) {
                    log::warn!("an rsocket's peer is at fault: {why}");
                    self.fail(Errno::PROTO);
                }
                return;
            }
            Work::Data(bytes) => peer.sender.message_left(bytes),
            Work::Direct(bytes) => peer.sender.direct_left(bytes),
            Work::Iomap => peer.sender.message_left(0),
            Work::Control(slots) => self.control.left(slots),
            Work::Part => {}
        }
        if !success && completion.status != WcStatus::WorkRequestFlushed {
            log::info!("an rsocket's work failed: {:?}", completion.status);
            self.fail(Errno::IO);
        }
    }

    fn received(&mut self, place: u32, bytes: u32) -> Result<(), Broken> {
        let mut message = [0; Message::BYTES];
        let at = self.inbox_at + (place % self.receives) as usize * Message::BYTES;
        if bytes as usize != Message::BYTES || self.own.read(at, &mut message).is_err() {
            return Err(Broken("a message that is not of four bytes"));
        }
        // After an end there is nothing to receive for.
        if let Err(fail) = self.post_receive(place) {
            log::debug!("a receive can't be posted again: {fail:?}");
        }
        match Message::from_ne_bytes(message) {
            Some(Message::Data(bytes)) => return self.receiver.arrived(bytes),
            Some(Message::Credits(upto)) => self.granted(upto),
            Some(Message::IomapUpdated(_)) => self.receiver.count_read(),
            Some(Message::Disconnect) => self.end_with(End::Closed),
            Some(Message::Shutdown) => {
                self.peer_writes = false;
                if !self.writes {
                    self.end_with(End::Closed);
                }
            }
            Some(Message::KeepAlive) => {}
            None => log::debug!("an rsocket's message of an unknown kind: {message:x?}"),
        }
        Ok(())
    }

    /// The peer lets more be sent, and may have written a target.
    fn granted(&mut self, upto: u16) {
        let Some(peer) = &mut self.peer else { return };
        for index in 0..TARGETS {
            if !peer.sender.lacks(index) {
                continue;
            }
            let at = self.targets_at + index * Entry::BYTES;
            if let Some(bytes) = read_stable(&self.open, at) {
                let target = Entry::from_ne_bytes(bytes);
                if target.length > 0 {
                    peer.sender.set_target(index, target);
                    // It is taken; what is written there next is another one.
                    let _ = self.open.write(at, &Entry::default().to_ne_bytes());
                }
            }
        }
        peer.sender.allow(upto);
    }

    /// Sends grants that are due and a farewell that waits, as far as control messages may go.
    fn tell_peer(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Some(farewell) = self.farewell
            && self.control.take(1, 0)
        {
            self.farewell = None;
            self.post(&[message_of(Work::Control(1), &farewell.to_ne_bytes())]);
            return;
        }
        while let (Some(grant), Some(peer)) = (self.receiver.due(), &mut self.peer) {
            let slots = if grant.half_at.is_some() { 2 } else { 1 };
            if !self.control.take(slots, 1) {
                return;
            }
            self.receiver.told(grant);
            let message = Message::Credits(grant.upto).to_ne_bytes();
            let message = message_of(Work::Control(slots), &message);
            let Some(half_at) = grant.half_at else {
                self.post(&[message]);
                continue;
            };
            let target = Entry {
                addr: self.open.addr() + u64::from(half_at),
                key: self.open.stag(),
                length: self.sizes.receive / 2,
            };
            let place = u64::from(peer.next_target) * Entry::BYTES as u64;
            peer.next_target = (peer.next_target + 1) % peer.targets.length;
            let to = remote(peer.targets.key, peer.targets.addr.wrapping_add(place));
            let entry = target.to_ne_bytes();
            let write = WorkRequest::write(Work::Part.id(), &[], to);
            self.post(&[write.inline(&entry).unsignaled(), message]);
        }
    }

    /// Posts work for which there is space; that it can't be posted ends the stream.
    fn post(&mut self, work: &[WorkRequest<'_>]) {
        let why = match self.qp.post_send_batch(work) {
            Ok(posted) if posted == work.len() => return,
            Ok(_) => "the send queue is full".to_owned(),
            Err(error) => error.to_string(),
        };
        log::info!("an rsocket can't send: {why}");
        self.fail(Errno::IO);
    }

    /// What `room` gives of the sender, if need be after looks at what has completed.
    fn find_room(&mut self, room: impl Fn(&Sender) -> u32) -> u32 {
        for _ in 0..LOOKS {
            let found = self.peer.as_ref().map_or(0, |peer| room(&peer.sender));
            if found > 0 || !self.progress() || self.end.is_some() {
                return found;
            }
        }
        0
    }

    /// Sends as much of `bytes` as can go now.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Outcome<usize> {
        self.check_writes()?;
        let mut left = bytes;
        while !left.is_empty() && self.end.is_none() {
            let room = self.find_room(Sender::room);
            let room = room.min(u32::try_from(left.len()).unwrap_or(u32::MAX));
            let Some(peer) = self.peer.as_mut().filter(|_| room > 0) else {
                break;
            };
            let part = peer.sender.take(room);
            let (now, later) = left.split_at(room as usize);
            let start = part.offset as usize;
            self.own.write(start, now)?;
            let sge = self.own.slice(start..start + now.len())?;
            let to = remote(part.to.key, part.to.addr);
            let message = Message::Data(room).to_ne_bytes();
            let write = WorkRequest::write(Work::Part.id(), std::slice::from_ref(&sge), to);
            self.post(&[write.unsignaled(), message_of(Work::Data(room), &message)]);
            left = later;
        }
        Ok(bytes.len() - left.len())
    }

    /// Reads what is there, at most what `into` holds.
    pub(crate) fn receive(&mut self, into: &mut [u8], peek: bool) -> Outcome<usize> {
        let mut got = 0;
        while got < into.len() {
            let skip = if peek { got as u32 } else { 0 };
            let (at, count) = self.receiver.unread_from(skip);
            let count = (count as usize).min(into.len() - got);
            if count == 0 {
                break;
            }
            self.open.read(at as usize, &mut into[got..got + count])?;
            got += count;
            if !peek {
                self.receiver.consume(count as u32);
            }
        }
        if got > 0 && !peek {
            self.tell_peer();
        }
        Ok(got)
    }

    /// That the program may still send.
    fn check_writes(&mut self) -> Outcome<()> {
        match self.end {
            _ if !self.writes => Err(Errno::PIPE.into()),
            None => Ok(()),
            Some(End::Closed) => Err(Errno::CONNRESET.into()),
            Some(End::Failed(_)) => Err(self.take_failure().unwrap_or(Errno::PIPE).into()),
        }
    }

    /// How it failed, unless the program knows.
    pub(crate) fn take_failure(&mut self) -> Option<Errno> {
        match self.end {
            Some(End::Failed(errno)) if !self.failure_told => {
                self.failure_told = true;
                Some(errno)
            }
            _ => None,
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.receiver.has_data()
    }

    pub(crate) fn may_send(&self) -> bool {
        self.peer
            .as_ref()
            .is_some_and(|peer| peer.sender.room() > 0)
    }

    /// Nothing more will be there to read.
    pub(crate) fn at_end(&self) -> bool {
        !self.has_data() && (!self.reads || !self.peer_writes || self.end.is_some())
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// The peer's address and the like are the socket's; this is what is asked of the RNIC.
    pub(crate) fn connect(&self, remote: SocketAddr, local: SocketAddr) -> Outcome<()> {
        let options = rnic::ConnectOptions::default()
            .private_data(self.hello().encode().to_vec())
            .transport(Process::transport()?)
            .mpa(Self::mpa())
            .local(Some(local.ip()))
            .local_port(local.port());
        Ok(self.qp.connect(remote, options).detach()?)
    }

    pub(crate) fn accept(&self, request: rnic::ConnectionRequest) -> Outcome<()> {
        let options = rnic::AcceptOptions::default()
            .private_data(self.hello().encode().to_vec())
            .mpa(Self::mpa());
        request
            .accept(&self.qp, options)
            .detach()
            .map_err(|error| match error {
                // Of the two objects only the request comes and goes by itself.
                rnic::Error::Refused(refusal) if refusal.code == RefusalCode::UnknownObject => {
                    Errno::CONNABORTED.into()
                }
                error => error.into(),
            })
    }
}
