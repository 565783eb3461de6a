//! The one connection: the stack, the byte streams on it, and what has become of it.

use std::net::SocketAddr;

use rnic_net::{IcmpReport, Path, Quoted, TCP_HEADER};
use rnic_xsk::Frame;
use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::stream::{ByteReader, ByteWriter};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, Segment, SoftError, Stack, TIMESTAMPS_LEN,
};

use super::error::PipeError;
use super::frames::Frames;
use super::host::Host;
use super::input::Input;
use super::output::{Output, SLICES};
use super::paths::Paths;
use super::stats::TcpStats;

/// Half-open connections of our listener.
const BACKLOG: usize = 64;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not established yet.
    Opening,
    Open,
    /// Closed in order by both ends.
    Closed,
    /// Refused by a reset.
    Refused,
    /// Ended by the peer's reset.
    Reset,
    /// Ended because the peer was silent.
    TimedOut,
}

/// TCP as this program needs it.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) stack: Stack<Frame>,
    pub(super) stage: Stage,
    conn: Option<ConnId>,
    tuple: Option<FourTuple>,
    listener: Option<Endpoint>,
    writer: Option<ByteWriter<Frame>>,
    reader: ByteReader<Frame>,
    mss: u16,
    pub(super) peer_closed: bool,
    /// Behind the peer's end something of ours was not acknowledged when a packet came last.
    owing: bool,
    /// The peer leaves segments unanswered, for whatever reason.
    pub(super) unanswered: bool,
    nodelay: bool,
    pub(super) stats: TcpStats,
}

impl Tcp {
    /// Nothing is opened yet. `pieces` is how many frames may be kept for reading.
    pub(super) fn new(
        config: Config,
        secret: [u8; 16],
        now: Instant,
        pieces: usize,
        nodelay: bool,
    ) -> Self {
        let window = config.receive_window.max(2 * u32::from(config.mss)) as usize;
        Self {
            mss: config.mss,
            stack: Stack::new(config, secret, now),
            stage: Stage::Opening,
            conn: None,
            tuple: None,
            listener: None,
            writer: None,
            reader: ByteReader::new(window, pieces),
            peer_closed: false,
            owing: false,
            unanswered: false,
            nodelay,
            stats: TcpStats::default(),
        }
    }

    /// Waits for a peer.
    pub(super) fn listen(&mut self, local: SocketAddr) -> Result<(), PipeError> {
        let local = Endpoint::from(local);
        self.stack.listen(local, BACKLOG)?;
        self.listener = Some(local);
        Ok(())
    }

    /// Goes to a peer.
    pub(super) fn connect(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        path: &Path,
    ) -> Result<(), PipeError> {
        let options = self.options(path, &tuple);
        self.conn = Some(self.stack.connect(now, tuple, options)?);
        self.tuple = Some(tuple);
        Ok(())
    }

    /// Both ends, once they are known.
    pub(super) fn tuple(&self) -> Option<FourTuple> {
        self.tuple
    }

    /// Takes a packet.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        frames: &mut Frames,
        (paths, host): (&mut Paths, &mut Host),
        frame: Frame,
        parsed: &rnic_net::Received,
    ) {
        let bytes = frames.umem.bytes(&frame);
        let tcp = parsed.tcp().and_then(|tcp| bytes.get(tcp)).unwrap_or(&[]);
        let Ok(segment) = Segment::parse(tcp) else {
            frames.pool.free(frame);
            return;
        };
        let segment = segment.with_ecn(parsed.ecn);
        let mut path = parsed.path;
        if self.conn.is_none() {
            // It may open the connection.
            path.mtu = path.mtu.min(host.mtu(now, &parsed.tuple));
        }
        let options = self.options(&path, &parsed.tuple);
        if self.peer_closed {
            let info = self.conn.and_then(|conn| self.stack.info(conn));
            self.owing = info.is_some_and(|info| info.queued_segments > 0);
        }
        let received = self.stack.receive(now, parsed.tuple, &segment, options);
        let payload_at = parsed.data.end - segment.payload.len();
        self.take_events(frames, paths);
        if received.conn.is_some() && received.conn == self.conn {
            self.reader.arrived(frames, frame, payload_at, &received);
        } else {
            frames.pool.free(frame);
        }
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, now: Instant, frames: &mut Frames, paths: &mut Paths) {
        if self.stack.next_deadline().is_some_and(|at| at <= now) {
            self.stack.advance(now);
            self.take_events(frames, paths);
        }
    }

    /// Takes an ICMP error about a segment of ours.
    pub(super) fn icmp(
        &mut self,
        now: Instant,
        report: &IcmpReport,
        frames: &mut Frames,
        paths: &mut Paths,
    ) {
        if let Quoted::Segment { seq } = report.quoted {
            self.stack.icmp(now, report.tuple, seq, report.error);
        }
        self.take_events(frames, paths);
    }

    fn options(&self, path: &Path, tuple: &FourTuple) -> ConnOptions {
        ConnOptions {
            mss: path.mss(tuple.remote.addr).min(self.mss),
        }
    }

    fn take_events(&mut self, frames: &mut Frames, paths: &mut Paths) {
        while let Some((conn, event)) = self.stack.poll_event() {
            if let Event::Incoming { tuple, .. } = event {
                self.incoming(conn, tuple, paths);
            }
            if self.conn != Some(conn) {
                continue;
            }
            match event {
                Event::Incoming { .. } | Event::Established => {
                    self.established(conn, frames, paths)
                }
                Event::PeerClosed => self.peer_closed = true,
                // Behind its own end and all of ours, a reset says only that nobody reads any more.
                Event::Reset if self.peer_closed && !self.owing => self.stage = Stage::Closed,
                Event::Reset => self.stage = Stage::Reset,
                Event::Refused => self.stage = Stage::Refused,
                Event::TimedOut => self.stage = Stage::TimedOut,
                Event::Closed => self.stage = Stage::Closed,
                Event::SoftError(SoftError::Unreachable { .. }) => {
                    log::warn!("a router says that the peer can't be reached; trying on");
                }
                Event::SoftError(SoftError::NoAnswer) => {
                    log::info!("the peer does not answer; trying on");
                    self.unanswered = true;
                }
                Event::TimeWaitOver
                | Event::MssChanged { .. }
                | Event::Urgent
                | Event::WindowTooSmall => {}
            }
        }
    }

    /// The first peer is the only one.
    fn incoming(&mut self, conn: ConnId, tuple: FourTuple, paths: &mut Paths) {
        if self.conn.is_some() {
            self.stack.abort(conn);
            return;
        }
        self.conn = Some(conn);
        self.tuple = Some(tuple);
        if let Some(way) = paths.way(&tuple) {
            paths.set(tuple, way);
        }
        if let Some(listener) = self.listener.take() {
            self.stack.unlisten(listener);
        }
    }

    fn established(&mut self, conn: ConnId, frames: &mut Frames, paths: &mut Paths) {
        self.stage = Stage::Open;
        self.writer = Some(ByteWriter::new(conn, self.nodelay));
        let Some(tuple) = self.tuple else { return };
        let timestamps = self.stack.info(conn).is_some_and(|info| info.timestamps);
        let options = if timestamps { TIMESTAMPS_LEN } else { 0 };
        let before = paths
            .way(&tuple)
            .map_or(0, |way| way.path.headers_len(tuple.remote.addr));
        frames.header_room = before + TCP_HEADER + options;
    }

    /// Notes the connection's figures.
    pub(super) fn look(&mut self) {
        if let Some(info) = self.conn.and_then(|conn| self.stack.info(conn)) {
            self.stats.look(&info);
        }
        self.stats.count(&self.stack);
    }

    /// Bytes that [`Tcp::write`] would take now.
    pub(super) fn room(&self) -> usize {
        self.writer
            .as_ref()
            .map_or(0, |writer| writer.room(&self.stack))
    }

    /// Takes bytes from `input` to send; says how many.
    pub(super) fn write(
        &mut self,
        now: Instant,
        frames: &mut Frames,
        input: &mut Input,
    ) -> std::io::Result<usize> {
        let Some(writer) = &mut self.writer else {
            return Ok(0);
        };
        writer.fill(&mut self.stack, now, frames, |places| input.read(places))
    }

    /// There is nothing more to write for now.
    pub(super) fn push(&mut self, now: Instant, frames: &mut Frames) {
        if let Some(writer) = &mut self.writer {
            writer.push(&mut self.stack, now, frames);
        }
    }

    /// Sends what has become possible to send.
    pub(super) fn settle(&mut self, now: Instant, frames: &mut Frames) {
        if let Some(writer) = &mut self.writer {
            writer.settle(&mut self.stack, now, frames);
        }
    }

    /// There will be nothing more to write.
    pub(super) fn close(&mut self, now: Instant, frames: &mut Frames) {
        if let Some(writer) = &mut self.writer
            && !writer.is_closing()
        {
            writer.close(&mut self.stack, now, frames);
        }
    }

    /// Bytes that wait to be read.
    pub(super) fn available(&self) -> usize {
        self.reader.available()
    }

    /// Gives bytes to `output`; says how many it took.
    pub(super) fn read(
        &mut self,
        frames: &mut Frames,
        output: &mut Output,
    ) -> std::io::Result<usize> {
        let mut slices: [&[u8]; SLICES] = [&[]; SLICES];
        let filled = self.reader.slices(frames, &mut slices);
        let taken = output.write(&slices[..filled])?;
        if taken > 0 {
            let to = self.reader.consume(frames, taken);
            if let Some(conn) = self.conn {
                self.stack.consumed(conn, to);
            }
        }
        Ok(taken)
    }

    /// Resets the connection.
    pub(super) fn abort(&mut self) {
        if let Some(conn) = self.conn {
            self.stack.abort(conn);
        }
        if let Some(listener) = self.listener.take() {
            self.stack.unlisten(listener);
        }
    }

    /// Bytes taken so far to send.
    pub(super) fn sent(&self) -> u64 {
        self.writer.as_ref().map_or(0, ByteWriter::bytes)
    }

    /// Bytes read so far.
    pub(super) fn received(&self) -> u64 {
        self.reader.consumed_to()
    }

    /// Whether the peer may still ask for the last acknowledgment of its end.
    pub(super) fn lingers(&self, now: Instant) -> bool {
        !self.stack.linger(now).is_zero()
    }
}
