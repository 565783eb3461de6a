//! TCP by itself, driven through its public interface as its caller drives it.

use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant, checksum};
use userspace_tcp::{
    ConnId, ConnOptions, ConnectError, Counters, Event, IcmpError, Info, KeepAlive, Outgoing,
    Payload, Segment, SendRefusal, SeqNum, Stack, State,
};

use crate::host::{Host, Leaving, SECRET, Taken};
use crate::look::Seen;
use crate::syntax::Script;
use crate::wire::Wire;

pub struct Alone(Stack<u32>);

const OPTIONS: ConnOptions = ConnOptions { mss: u16::MAX };

impl Host for Alone {
    type Conn = ConnId;

    const TELLS: bool = true;

    fn new(script: &Script, start: Instant) -> Self {
        Self(Stack::new(script.settings.stack.clone(), SECRET, start))
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        self.0.next_deadline()
    }

    fn advance(&mut self, now: Instant) {
        self.0.advance(now);
    }

    fn receive(&mut self, now: Instant, ends: FourTuple, wire: &Wire) -> Option<Taken<ConnId>> {
        let bytes = wire.encode();
        // What does not parse is dropped by whoever reads the packet.
        let segment = Segment::parse(&bytes).ok()?.with_ecn(wire.ecn);
        let received = self.0.receive(now, ends, &segment, OPTIONS);
        let conn = received.conn;
        Some(Taken { conn, received })
    }

    fn next_segment(&mut self, now: Instant) -> Option<Leaving<ConnId>> {
        let transmit = self.0.poll_transmit(now)?;
        let mut bytes = [0; 60];
        let len = transmit.header.emit(&mut bytes);
        let payload_len = transmit.payload.as_ref().map_or(0, |payload| payload.len);
        let wire = Wire {
            ecn: transmit.ecn,
            fragment: transmit.fragment_to,
            ..Wire::decode(&bytes[..len], payload_len)
        };
        let payload = transmit.payload;
        let payload =
            payload.map(|payload| (transmit.conn.expect("bytes of a connection"), payload));
        Some(Leaving {
            ends: transmit.tuple,
            wire,
            payload,
        })
    }

    fn transmitted(&mut self, conn: ConnId, payload: Payload<u32>) -> bool {
        self.0.transmitted(conn, payload.id, payload.buf).is_some()
    }

    fn next_released(&mut self) -> bool {
        self.0.poll_released().is_some()
    }

    fn next_event(&mut self) -> Option<(ConnId, Event)> {
        self.0.poll_event()
    }

    fn connect(&mut self, now: Instant, ends: FourTuple, mss: u16) -> Result<ConnId, &'static str> {
        let result = self.0.connect(now, ends, ConnOptions { mss });
        result.map_err(|error| match error {
            ConnectError::InUse { .. } => "in_use",
            ConnectError::DropReason { .. } => "unusable",
            ConnectError::TooMany { .. } => "too_many",
        })
    }

    fn listen(&mut self, _now: Instant, local: Endpoint, backlog: usize) -> Result<(), String> {
        let result = self.0.listen(local, backlog);
        result.map_err(|error| error.to_string())
    }

    fn unlisten(&mut self, _now: Instant, local: Endpoint) -> bool {
        self.0.unlisten(local)
    }

    fn send(&mut self, now: Instant, conn: ConnId, buf: u32, len: u32) -> Result<(), &'static str> {
        let payload_sum = checksum::PartialSum::ZERO;
        let outgoing = Outgoing {
            buf,
            len,
            payload_sum,
        };
        let result = self.0.send(conn, now, outgoing);
        result.map(drop).map_err(|error| match error.reason {
            SendRefusal::Gone => "gone",
            SendRefusal::NotEstablished => "not_established",
            SendRefusal::Closed => "closed",
            SendRefusal::QueueFull { .. } => "queue_full",
            SendRefusal::Length { .. } => "length",
        })
    }

    fn close(&mut self, _now: Instant, conn: ConnId) -> bool {
        self.0.close(conn)
    }

    fn abort(&mut self, _now: Instant, conn: ConnId) -> bool {
        self.0.abort(conn)
    }

    fn consumed(&mut self, conn: ConnId, to: u64) {
        self.0.consumed(conn, to);
    }

    fn set_keepalive(&mut self, now: Instant, conn: ConnId, wanted: Option<KeepAlive>) -> bool {
        self.0.set_keepalive(conn, now, wanted)
    }

    fn set_user_timeout(&mut self, now: Instant, conn: ConnId, timeout: Duration) -> bool {
        self.0.set_user_timeout(conn, now, timeout)
    }

    fn icmp(&mut self, now: Instant, ends: FourTuple, seq: SeqNum, error: IcmpError) -> bool {
        self.0.icmp(now, ends, seq, error)
    }

    fn look(&self, conn: Option<ConnId>, name: &str) -> Seen {
        look(&self.0, conn, name)
    }
}

/// Looks at `name`, of one connection or of the whole stack.
fn look(stack: &Stack<u32>, conn: Option<ConnId>, name: &str) -> Seen {
    if let Some(seen) = look_at_stack(stack, name) {
        return seen;
    }
    let info = conn.and_then(|conn| stack.info(conn).map(|info| (conn, info)));
    match (name, info) {
        ("state", None) => Seen::Word("CLOSED"),
        (_, None) => Seen::Nothing,
        ("send_room", Some((conn, _))) => Seen::Number(stack.send_room(conn) as u64),
        ("mss", Some((conn, _))) => Seen::Number(stack.mss(conn) as u64),
        (_, Some((_, info))) => look_at_connection(&info, name),
    }
}

fn look_at_stack(stack: &Stack<u32>, name: &str) -> Option<Seen> {
    let Counters {
        backlog_full,
        cookies_sent,
        cookies_accepted,
        cookies_rejected,
        half_open_evicted,
        table_full,
        unknown_flow,
        resets_sent,
        resets_limited,
        time_wait_evicted,
        ..
    } = stack.counters();
    let totals = stack.totals();
    let number = match name {
        "idle" => {
            let idle = stack.next_deadline().is_none();
            return Some(Seen::Word(if idle { "yes" } else { "no" }));
        }
        "connections" => stack.connections_at(crate::machine::local(false)) as u64,
        "backlog_full" => backlog_full,
        "cookies_sent" => cookies_sent,
        "cookies_accepted" => cookies_accepted,
        "cookies_rejected" => cookies_rejected,
        "half_open_evicted" => half_open_evicted,
        "table_full" => table_full,
        "unknown_flow" => unknown_flow,
        "resets_sent" => resets_sent,
        "resets_limited" => resets_limited,
        "time_wait_evicted" => time_wait_evicted,
        "total_retransmits" => totals.retransmits,
        "total_timeouts" => totals.timeouts,
        "total_probes" => totals.probes,
        "total_challenges" => totals.challenges,
        "total_paws_dropped" => totals.paws_dropped,
        _ => return None,
    };
    Some(Seen::Number(number))
}

fn look_at_connection(info: &Info, name: &str) -> Seen {
    let counters = &info.counters;
    let number = match name {
        "state" => return Seen::Word(state_name(info.state)),
        "timestamps" => return Seen::Word(if info.timestamps { "on" } else { "off" }),
        "srtt" => return info.srtt.map_or(Seen::Nothing, Seen::Time),
        "rttvar" => return Seen::Time(info.rttvar),
        "rto" => return Seen::Time(info.rto),
        "cwnd" => info.cwnd,
        "ssthresh" => info.ssthresh,
        "pipe" => info.pipe,
        "peer_window" => info.peer_window,
        "queued" => info.queued_segments as u64,
        "segments_in" => counters.segments_in,
        "segments_out" => counters.segments_out,
        "bytes_in" => counters.bytes_in,
        "bytes_out" => counters.bytes_out,
        "retransmits" => counters.retransmits,
        "timeouts" => counters.timeouts,
        "fast_recoveries" => counters.fast_recoveries,
        "needless_recoveries" => counters.needless_recoveries,
        "spurious_timeouts" => counters.spurious_timeouts,
        "probes" => counters.probes,
        "out_of_order" => counters.out_of_order,
        "duplicates" => counters.duplicates,
        "ranges_full" => counters.ranges_full,
        "paws_dropped" => counters.paws_dropped,
        "challenges" => counters.challenges,
        "keepalives" => counters.keepalives,
        "urgent_to" => match info.urgent_to {
            // As a sequence number.
            Some(offset) => offset + 1,
            None => return Seen::Nothing,
        },
        _ => return Seen::Nothing,
    };
    Seen::Number(number)
}

fn state_name(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::Closing => "CLOSING",
        State::TimeWait => "TIME-WAIT",
        State::CloseWait => "CLOSE-WAIT",
        State::LastAck => "LAST-ACK",
    }
}
