//! What `? name op value` looks at.

use std::time::Duration;

use userspace_tcp::{ConnId, Counters, Info, Stack, State};

use crate::syntax::{Op, Question, Value};

/// A thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Number(u64),
    Time(Duration),
    Word(&'static str),
    /// There is no such connection (any more), or it has no such thing yet.
    Nothing,
}

/// Every name that a script may ask for. `iss` is known to the machine, not to the stack.
pub const NAMES: [&str; 47] = [
    "state",
    "idle",
    "mss",
    "timestamps",
    "srtt",
    "rttvar",
    "rto",
    "cwnd",
    "ssthresh",
    "pipe",
    "peer_window",
    "queued",
    "send_room",
    "segments_in",
    "segments_out",
    "bytes_in",
    "bytes_out",
    "retransmits",
    "timeouts",
    "fast_recoveries",
    "needless_recoveries",
    "spurious_timeouts",
    "probes",
    "out_of_order",
    "duplicates",
    "ranges_full",
    "paws_dropped",
    "challenges",
    "keepalives",
    "urgent_to",
    "backlog_full",
    "cookies_sent",
    "cookies_accepted",
    "cookies_rejected",
    "half_open_evicted",
    "table_full",
    "unknown_flow",
    "resets_sent",
    "resets_limited",
    "time_wait_evicted",
    "total_retransmits",
    "total_timeouts",
    "total_probes",
    "total_challenges",
    "total_paws_dropped",
    "connections",
    "iss",
];

/// Every value of `state`.
pub const STATES: [&str; 10] = [
    "CLOSED",
    "SYN-SENT",
    "SYN-RECEIVED",
    "ESTABLISHED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSING",
    "TIME-WAIT",
    "CLOSE-WAIT",
    "LAST-ACK",
];

/// Looks at `name`, of one connection or of the whole stack.
pub fn look(stack: &Stack<u32>, conn: Option<ConnId>, name: &str) -> Seen {
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

/// Whether `seen` is as asked. `Err`: the two can't be compared.
pub fn agrees(
    question: &Question,
    seen: &Seen,
    unit: impl Fn(&str) -> Seen,
) -> Result<bool, String> {
    let Question { name, op, value } = question;
    let order = match (seen, value) {
        (Seen::Nothing, Value::Word(word)) if word == "none" => std::cmp::Ordering::Equal,
        (_, Value::Word(word)) if word == "none" => std::cmp::Ordering::Greater,
        (Seen::Word(seen), Value::Word(word)) => (*seen).cmp(word.as_str()),
        (Seen::Time(seen), Value::Time(time)) => seen.cmp(time),
        (Seen::Number(seen), Value::Number { count, of }) => {
            let unit = match of.as_deref().map(unit) {
                None => 1,
                Some(Seen::Number(unit)) => unit,
                Some(_) => return Err(format!("{of:?} is no number")),
            };
            seen.cmp(&count.saturating_mul(unit))
        }
        _ => {
            return Err(format!(
                "{name} is {seen:?}, which can't be compared with {value:?}"
            ));
        }
    };
    Ok(match op {
        Op::Is => order.is_eq(),
        Op::IsNot => order.is_ne(),
        Op::Less => order.is_lt(),
        Op::AtMost => order.is_le(),
        Op::More => order.is_gt(),
        Op::AtLeast => order.is_ge(),
    })
}
