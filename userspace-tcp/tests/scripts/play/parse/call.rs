//! What the layer above, the link and the network do: `connect`, `send 3x1000`, `icmp too_big ...`.

use userspace_tcp::{IcmpError, KeepAlive};

use crate::lexer::{Cursor, Parsed};
use crate::syntax::Call;

pub(super) fn call(cursor: &mut Cursor<'_>) -> Parsed<Call> {
    let here = *cursor;
    let expected = "<, >, !, ?, =, or a call: connect, listen, unlisten, send, close, abort, \
                    consumed, link, incarnation, icmp, keepalive, user_timeout";
    match cursor.word(expected)? {
        "connect" => Ok(Call::Connect {
            mss: if cursor.eat("mss=") {
                cursor.number("bytes")?
            } else {
                u16::MAX
            },
            refused: refusal(cursor, &["in_use", "unusable", "too_many"])?,
        }),
        "listen" => Ok(Call::Listen {
            backlog: if cursor.eat("backlog=") {
                cursor.number("connections")?
            } else {
                100
            },
        }),
        "unlisten" => Ok(Call::Unlisten),
        "send" => {
            let first = cursor.number::<u32>("the number of bytes")?;
            let (count, len) = if cursor.eat("x") {
                (first as usize, cursor.number("the number of bytes")?)
            } else {
                (1, first)
            };
            let reasons = ["gone", "not_established", "closed", "queue_full", "length"];
            let refused = refusal(cursor, &reasons)?;
            Ok(Call::Send {
                count,
                len,
                refused,
            })
        }
        "close" => Ok(Call::Close {
            gone: cursor.eat_word("gone"),
        }),
        "abort" => Ok(Call::Abort {
            gone: cursor.eat_word("gone"),
        }),
        "consumed" => Ok(Call::Consumed {
            to: cursor.number("a sequence number")?,
        }),
        "link" => match cursor.word("`holds` or `returns`")? {
            "holds" => Ok(Call::LinkHolds),
            "returns" => Ok(Call::LinkReturns),
            _ => Err(here.wrong("`link holds` or `link returns`")),
        },
        "incarnation" => Ok(Call::Incarnation {
            irs: if cursor.eat("irs=") {
                Some(cursor.number("a sequence number")?)
            } else {
                None
            },
        }),
        "icmp" => icmp(cursor),
        "keepalive" => keepalive(cursor),
        "user_timeout" => Ok(Call::UserTimeout(cursor.duration("a time")?)),
        _ => Err(here.wrong(expected)),
    }
}

fn refusal(cursor: &mut Cursor<'_>, reasons: &[&str]) -> Parsed<Option<String>> {
    if !cursor.eat_word("refused") {
        return Ok(None);
    }
    let here = *cursor;
    let reason = cursor.word("a reason")?;
    if !reasons.contains(&reason) {
        return Err(here.wrong(&format!("a reason: one of {}", reasons.join(", "))));
    }
    Ok(Some(reason.to_owned()))
}

fn icmp(cursor: &mut Cursor<'_>) -> Parsed<Call> {
    let here = *cursor;
    let error = match cursor.word("an error")? {
        "too_big" => IcmpError::PacketTooBig {
            mtu: cursor.number("the MTU, in bytes")?,
        },
        "unreachable_hard" => IcmpError::Unreachable { hard: true },
        "unreachable_soft" => IcmpError::Unreachable { hard: false },
        _ => return Err(here.wrong("too_big, unreachable_hard or unreachable_soft")),
    };
    cursor.expect("seq")?;
    let seq = cursor.number("a sequence number")?;
    let taken = !cursor.eat_word("ignored");
    Ok(Call::Icmp { error, seq, taken })
}

fn keepalive(cursor: &mut Cursor<'_>) -> Parsed<Call> {
    if cursor.eat_word("off") {
        return Ok(Call::Keepalive(None));
    }
    cursor.expect("idle=")?;
    let idle = cursor.duration("a time")?;
    cursor.expect("interval=")?;
    let interval = cursor.duration("a time")?;
    cursor.expect("probes=")?;
    let probes = cursor.number("a number of probes")?;
    Ok(Call::Keepalive(Some(KeepAlive {
        idle,
        interval,
        probes,
    })))
}
