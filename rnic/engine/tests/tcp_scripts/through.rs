//! A shard as a script's host: segments go in and out as Ethernet frames, and a client of it makes the calls.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rnic_engine::command::{Command, CommandError};
use rnic_ipc::control::{MpaOptions, ReceiveWait};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_net::{IcmpReport, Path, Quoted};
use rnic_proto::Stag;
use userspace_net::{Ecn, Endpoint, FourTuple, Instant};
use userspace_tcp::{Config, Event, IcmpError, KeepAlive, Payload, Received, SeqNum};

use crate::frame;
use crate::host::{Host, Leaving, SECRET, Taken};
use crate::look::Seen;
use crate::side::{LISTENER, Side, SideConfig};
use crate::startup::{FIN, Flow, REPLY, REQUEST, Stage};
use crate::syntax::{Action, Call, Script};
use crate::wire::{SYN, Wire};

/// An FPDU with an RDMA Write of nothing: what the peer's stream is made of (RFC 5044 section 4, RFC 5041 section 4.1,
/// RFC 5040 section 4.1). Its CRC32C is the last word.
const FPDU: [u8; 20] = {
    let mut fpdu = [0; 20];
    (fpdu[1], fpdu[2], fpdu[3]) = (14, 0xc1, 0x40);
    fpdu
};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Port of the peer that takes the place in a backlog of one.
const OCCUPANT: u16 = 39_999;

/// Bytes of an FPDU with a Write around those that are written.
const WRITE_OVERHEAD: usize = 20;

/// An FPDU with a Send of nothing, for which no receive is posted: it waits, and the stream with it.
const SEND: [u8; 24] = {
    let mut fpdu = [0; 24];
    (fpdu[1], fpdu[2], fpdu[3]) = (18, 0x41, 0x43);
    // Its MSN.
    fpdu[15] = 1;
    fpdu
};

/// `MEASURED`: a start-up takes as long as the script's handshake, by the shard's clock; else no time.
///
/// `HELD`: a Send that waits for its receive ends the start-up, so that the peer's FIN waits too, in CLOSE-WAIT. `close`
/// posts the receive: for scripts in which the peer closes first.
pub struct Through<const MEASURED: bool, const HELD: bool> {
    side: Side,
    /// How far the shard's clock is ahead of the script's.
    ahead: Duration,
    initial_rto: Duration,
    keepalive: Option<KeepAlive>,
    user_timeout: Duration,
    mtu: u32,
    /// By the peer's port.
    flows: HashMap<u16, Flow>,
    qps: HashMap<u16, QpNum>,
    leaving: VecDeque<Leaving<u16>>,
    /// The FIN that left with the ACK of the peer's, and when: a script whose next step is to close sees it then.
    fin: Option<(Instant, Leaving<u16>)>,
    reader: frame::Reader,
}

impl<const MEASURED: bool, const HELD: bool> Through<MEASURED, HELD> {
    /// What the shard's clock shows.
    fn at(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// What the shard's clock is ahead, as its timestamps count.
    fn ahead_ms(&self) -> u32 {
        self.ahead.as_millis() as u32
    }

    /// Has the shard do what there is, and takes what it sends.
    fn poll(&mut self, now: Instant) {
        while self.poll_once(now) {}
    }

    fn poll_once(&mut self, now: Instant) -> bool {
        let mut worked = self.side.shard.poll(self.at(now));
        self.side.collect();
        let mut bytes = Vec::new();
        while self.side.wire.as_ref().unwrap().take(&mut bytes) {
            worked = true;
            if let Some(taken) = self.reader.read(&bytes) {
                self.takes(&taken, now);
            }
        }
        while let Some((request, _, _)) = self.side.take_request() {
            let port = self.requested();
            let qp = self.side.create_qp();
            let accept = Command::Accept {
                request,
                qp,
                mpa: mpa(),
                private_data: Vec::new(),
            };
            if self.side.shard.execute(accept, self.at(now)).is_ok() {
                self.qps.extend(port.map(|port| (port, qp)));
            }
            worked = true;
        }
        worked || self.starts()
    }

    /// The flow whose Request the shard has heard of.
    fn requested(&self) -> Option<u16> {
        let waits = |flow: &Flow| flow.stage == Stage::Requested && !flow.active;
        let mut flows = self.flows.iter();
        flows.find(|(_, flow)| waits(flow)).map(|(port, _)| *port)
    }

    /// A segment that the shard sent.
    fn takes(&mut self, taken: &frame::Taken, now: Instant) {
        let wire = Wire {
            ecn: taken.ecn,
            fragment: taken.fragment,
            ..Wire::decode(&taken.header, taken.payload.len() as u32)
        };
        let (ends, port, ahead) = (taken.ends, taken.ends.remote.port, self.ahead_ms());
        let flow = self.flows.entry(port).or_insert_with(|| Flow::new(false));
        let before = flow.stage;
        let replied = before == Stage::Requested && taken.payload.starts_with(&REPLY[..16]);
        let is_first_syn = wire.syn() && flow.syn_at.is_none();
        let shown = flow.outward(wire, &taken.payload, ahead);
        if port == OCCUPANT {
            return;
        }
        if let Some(mut wire) = shown {
            let leaving = |wire| Leaving {
                ends,
                wire,
                payload: None,
            };
            if flow.answers_fin(&wire) {
                self.fin = Some((now, leaving(wire.clone())));
                wire.flags &= !FIN;
            }
            self.leaving.push_back(leaving(wire));
        }
        if is_first_syn {
            flow.syn_at = Some(now);
            if MEASURED {
                flow.repeats_syn = true;
                self.ahead += self.initial_rto;
            }
        }
        let requested = before == Stage::Opening && flow.stage == Stage::Requested;
        let written = before == Stage::Replied && flow.stage == Stage::Done;
        let (says, then): (&[u8], _) = match (requested, replied) {
            (true, _) if HELD => (REPLY, Stage::Replied),
            (true, _) => (REPLY, Stage::Done),
            (_, true) if HELD => (&[&whole(FPDU)[..], &whole(SEND)].concat(), Stage::Done),
            (_, true) => (&whole(FPDU), Stage::Done),
            _ if written => (&whole(SEND), Stage::Done),
            _ => return,
        };
        if let (true, Some(syn_at)) = (MEASURED, flow.syn_at) {
            self.ahead += now.saturating_duration_since(syn_at);
        }
        self.says(ends, says, then);
        if then == Stage::Replied {
            // A responder sends no FPDU before it has had one (RFC 5044 section 7.1.2).
            let _ = self.send(now, port, 0, WRITE_OVERHEAD as u32);
        }
    }

    /// Begins start-ups of which the script has sent the last segment before them.
    fn starts(&mut self) -> bool {
        let ready = |flow: &Flow| flow.stage == Stage::PerhapsEstablished;
        let mut flows = self.flows.iter();
        let Some(port) = flows.find(|(_, flow)| ready(flow)).map(|(port, _)| *port) else {
            return false;
        };
        let remote = peer(self.side.address.ip(), port);
        let ends = FourTuple::new(endpoint(self.side.address), remote);
        self.says(ends, REQUEST, Stage::Requested);
        true
    }

    /// The peer says something of the start-up's.
    fn says(&mut self, ends: FourTuple, bytes: &[u8], then: Stage) {
        let flow = self.flows.get_mut(&ends.remote.port).unwrap();
        let wire = flow.says(bytes.len());
        (flow.stage, flow.owes_ack) = (then, then == Stage::Done);
        self.puts(ends, &wire, bytes);
        if then == Stage::Done {
            // Once more: a duplicate is acknowledged at once, so that no delayed ACK is left for the script to meet.
            self.puts(ends, &wire, bytes);
        }
    }

    /// Nothing closed in the instant of the FIN that is held: the script has to expect it as it is.
    fn fin_leaves(&mut self) {
        self.leaving.extend(self.fin.take().map(|(_, fin)| fin));
    }

    /// A peer that the script knows nothing of asks for a connection, and says no more.
    fn occupy(&mut self) {
        let remote = peer(self.side.address.ip(), OCCUPANT);
        let wire = Wire {
            ports: (OCCUPANT, self.side.address.port()),
            flags: SYN,
            seq: 0,
            ack: 0,
            window: 1000,
            urgent: 0,
            options: Vec::new(),
            len: 0,
            ecn: Ecn::NotEct,
            fragment: None,
        };
        let ends = FourTuple::new(endpoint(self.side.address), remote);
        self.puts(ends, &wire, b"");
    }

    fn puts(&self, ends: FourTuple, wire: &Wire, payload: &[u8]) {
        let mut segment = wire.encode();
        let header = segment.len() - wire.len as usize;
        segment[header..].copy_from_slice(payload);
        let ends = FourTuple::new(ends.remote, ends.local);
        let frame = frame::write(ends, (THEIRS, OURS), wire.ecn, segment);
        assert!(self.side.wire.as_ref().unwrap().push(&frame));
    }
}

impl<const MEASURED: bool, const HELD: bool> Host for Through<MEASURED, HELD> {
    type Conn = u16;

    const TELLS: bool = false;

    fn new(script: &Script, _start: Instant) -> Self {
        let settings = &script.settings;
        let headers = if settings.ipv6 { 60 } else { 40 };
        let mtu = u32::from(settings.stack.mss) + headers;
        let mut config = SideConfig::of_mtu(mtu);
        let shard = &mut config.shard;
        shard.tcp = tcp(script);
        let (keepalive, user_timeout) = (shard.tcp.keepalive, shard.tcp.user_timeout);
        (shard.secret, shard.common_secret) = (SECRET, SECRET);
        shard.limits.connections = settings.stack.connections.min(64);
        // What MPA's start-up and its end wait for is not TCP's.
        let long = Duration::from_secs(1_000_000);
        (shard.startup_timeout, shard.first_byte_timeout) = (long, long);
        (shard.answer_timeout, shard.close_timeout) = (long, long);
        let local = crate::machine::local(settings.ipv6);
        let mut side = Side::new(1, SocketAddr::new(local.addr, local.port), config);
        side.receive_wait = HELD.then_some(ReceiveWait::Forever);
        Self {
            ahead: Duration::ZERO,
            initial_rto: settings.stack.initial_rto,
            keepalive,
            user_timeout,
            side,
            mtu,
            flows: HashMap::new(),
            qps: HashMap::new(),
            leaving: VecDeque::new(),
            fin: None,
            reader: frame::Reader::default(),
        }
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let deadline = self.side.shard.next_deadline()?.as_nanos();
        let ahead = self.ahead.as_nanos() as u64;
        Some(Instant::from_nanos(deadline.saturating_sub(ahead)))
    }

    fn advance(&mut self, now: Instant) {
        self.poll(now);
    }

    fn receive(&mut self, _now: Instant, ends: FourTuple, wire: &Wire) -> Option<Taken<u16>> {
        self.fin_leaves();
        let port = ends.remote.port;
        let ahead = self.ahead_ms();
        let flow = self.flows.entry(port).or_insert_with(|| Flow::new(false));
        let stream = flow.offset(wire);
        let shifted = flow.inward(wire, ahead);
        let stream = stream..stream + wire.len as usize;
        let fpdu = whole(FPDU);
        let payload: Vec<u8> = stream.map(|at| fpdu[at % fpdu.len()]).collect();
        self.puts(ends, &shifted, &payload);
        Some(Taken {
            conn: Some(port),
            received: Received::default(),
        })
    }

    fn next_segment(&mut self, now: Instant) -> Option<Leaving<u16>> {
        if self.leaving.is_empty() {
            self.poll(now);
        }
        if self.fin.as_ref().is_some_and(|(at, _)| *at < now) {
            self.fin_leaves();
        }
        self.leaving.pop_front()
    }

    fn transmitted(&mut self, _conn: u16, _payload: Payload<u32>) -> bool {
        true
    }

    fn next_released(&mut self) -> bool {
        false
    }

    fn next_event(&mut self) -> Option<(u16, Event)> {
        None
    }

    fn connect(&mut self, now: Instant, ends: FourTuple, mss: u16) -> Result<u16, &'static str> {
        let headers = if ends.local.addr.is_ipv4() { 40 } else { 60 };
        let path = Path {
            src_mac: OURS,
            dst_mac: THEIRS,
            vlan: None,
            mtu: self.mtu.min(u32::from(mss) + headers),
            hop_limit: 64,
        };
        let (port, remote) = (ends.remote.port, ends.remote);
        let remote = SocketAddr::new(remote.addr, remote.port);
        let qp = self.side.create_qp();
        let now = self.at(now);
        let result = self
            .side
            .connect(qp, ends.local.port, remote, path, mpa(), b"", now);
        match result {
            Ok(_) => {
                self.flows.insert(port, Flow::new(true));
                self.qps.insert(port, qp);
                Ok(port)
            }
            Err(CommandError::InUse { .. }) => Err("in_use"),
            Err(CommandError::Limit { .. }) => Err("too_many"),
            Err(_) => Err("unusable"),
        }
    }

    fn listen(&mut self, now: Instant, _local: Endpoint, backlog: usize) -> Result<(), String> {
        let at = self.at(now);
        self.side.listen(backlog as u32, at);
        if backlog == 0 {
            // The shard's least is one, which is taken then.
            self.occupy();
            self.poll(now);
        }
        Ok(())
    }

    fn unlisten(&mut self, now: Instant, _local: Endpoint) -> bool {
        let command = Command::Unlisten { listener: LISTENER };
        let now = self.at(now);
        self.side.shard.execute(command, now).is_ok()
    }

    /// As an RDMA Write, whose FPDU is so long.
    fn send(&mut self, _now: Instant, port: u16, _buf: u32, len: u32) -> Result<(), &'static str> {
        let len = len as usize;
        let qp = self.qps.get(&port).ok_or("not_established")?;
        if len < WRITE_OVERHEAD || !len.is_multiple_of(4) {
            return Err("length");
        }
        let remote = (Stag(0), 0);
        let bytes = len - WRITE_OVERHEAD;
        self.side
            .post_work(*qp, WrOpcode::Write, 1, 0, remote, bytes);
        Ok(())
    }

    fn close(&mut self, now: Instant, port: u16) -> bool {
        if let Some((_, fin)) = self.fin.take_if(|(_, fin)| fin.ends.remote.port == port) {
            self.leaving.push_back(fin);
            return true;
        }
        if HELD {
            let qp = self.qps.get(&port);
            qp.inspect(|qp| self.side.post_recv(**qp, 2, 0, 0));
            return qp.is_some();
        }
        self.disconnect(now, port, false)
    }

    fn abort(&mut self, now: Instant, port: u16) -> bool {
        self.disconnect(now, port, true)
    }

    fn consumed(&mut self, _conn: u16, _to: u64) {}

    /// Not of a connection that is there: what [`tcp`] has set holds for it, or nothing does.
    fn set_keepalive(&mut self, _now: Instant, _conn: u16, wanted: Option<KeepAlive>) -> bool {
        self.keepalive == wanted
    }

    fn set_user_timeout(&mut self, _now: Instant, _conn: u16, timeout: Duration) -> bool {
        self.user_timeout == timeout
    }

    fn icmp(&mut self, now: Instant, ends: FourTuple, seq: SeqNum, error: IcmpError) -> bool {
        let flow = self.flows.get(&ends.remote.port);
        let seq = flow.map_or(seq, |flow| SeqNum(flow.quoted(seq.0)));
        let report = IcmpReport {
            tuple: ends,
            quoted: Quoted::Segment { seq },
            error,
        };
        let reports = vec![report];
        let command = Command::IcmpErrors { reports };
        let now = self.at(now);
        self.side.shard.execute(command, now).is_ok()
    }

    fn incarnation(&mut self, ends: FourTuple) {
        self.flows.remove(&ends.remote.port);
        self.qps.remove(&ends.remote.port);
    }

    fn script_is_over(&mut self) {
        self.fin_leaves();
    }

    fn look(&self, _conn: Option<u16>, _name: &str) -> Seen {
        Seen::Nothing
    }
}

impl<const MEASURED: bool, const HELD: bool> Through<MEASURED, HELD> {
    fn disconnect(&mut self, now: Instant, port: u16, abort: bool) -> bool {
        if let Some(&qp) = self.qps.get(&port) {
            let command = Command::Disconnect { qp, abort };
            let now = self.at(now);
            let _ = self.side.shard.execute(command, now);
        }
        true
    }
}

/// The shard's settings. It has keepalive and user timeout for all connections to come: where a script's `config` says
/// nothing of them, they are what its first call for a connection says.
fn tcp(script: &Script) -> Config {
    let (mut tcp, default) = (script.settings.stack.clone(), Config::default());
    let calls = script.steps.iter().filter_map(|step| match &step.action {
        Action::Call(call) => Some(call),
        _ => None,
    });
    for call in calls {
        if let Call::Keepalive(wanted) = call
            && tcp.keepalive == default.keepalive
        {
            tcp.keepalive = *wanted;
        }
        if let Call::UserTimeout(timeout) = call
            && tcp.user_timeout == default.user_timeout
        {
            tcp.user_timeout = *timeout;
        }
    }
    tcp
}

fn mpa() -> MpaOptions {
    MpaOptions {
        revision: 1,
        ..MpaOptions::default()
    }
}

/// An FPDU with its CRC.
fn whole<const LEN: usize>(mut fpdu: [u8; LEN]) -> [u8; LEN] {
    let (covered, last) = fpdu.split_at_mut(LEN - 4);
    last.copy_from_slice(&rnic_crc::append(0, covered).to_le_bytes());
    fpdu
}

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::new(address.ip(), address.port())
}

fn peer(ours: IpAddr, port: u16) -> Endpoint {
    let address = match ours {
        IpAddr::V4(_) => "198.18.0.2",
        IpAddr::V6(_) => "2001:db8::2",
    };
    Endpoint::new(address.parse().unwrap(), port)
}
