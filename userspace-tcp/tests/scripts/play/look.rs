//! What `? name op value` looks at.

use std::time::Duration;

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
