//! When a line happens, and what: `+.2 > ...`, `& send 1000`, `? state == ESTABLISHED`.

use userspace_tcp::{IcmpError, KeepAlive};

use crate::lexer::{Cursor, Parsed};
use crate::syntax::{Action, Call, Happening, Op, Place, Question, Shown, Step, Value, When};

use super::segment;

/// The steps of one line; `before` is what the line before does that is not just a look.
pub fn steps(text: &str, place: &Place, before: Option<&Action>) -> Parsed<Vec<Step>> {
    let mut cursor = Cursor::new(text);
    let here = cursor;
    let mut when = when(&mut cursor)?;
    let actions = actions(&mut cursor)?;
    let peer = if cursor.eat_word("peer") {
        cursor.number("the number of a peer")?
    } else {
        0
    };
    cursor.end()?;
    if is_range(when) && !actions.iter().all(Action::is_expectation) {
        return Err(here.wrong("one time, not a range: only what is expected may choose"));
    }
    if when == When::Together {
        let inputs = before.is_some_and(Action::is_input) && actions.iter().all(Action::is_input);
        if !inputs {
            return Err(here.wrong("`&` between two inputs: an incoming segment or a call"));
        }
    }
    let mut steps = Vec::new();
    for action in actions {
        let place = place.clone();
        steps.push(Step {
            place,
            when,
            action,
            peer,
        });
        if when != When::Together {
            when = NOW;
        }
    }
    Ok(steps)
}

fn is_range(when: When) -> bool {
    match when {
        When::Together => false,
        When::Relative { from, to } | When::Absolute { from, to } => from != to,
    }
}

const NOW: When = When::Relative {
    from: std::time::Duration::ZERO,
    to: std::time::Duration::ZERO,
};

/// Nothing written means `+0`.
fn when(cursor: &mut Cursor<'_>) -> Parsed<When> {
    if cursor.eat("&") {
        return Ok(When::Together);
    }
    let relative = cursor.eat("+");
    if !relative
        && !cursor
            .remaining()
            .starts_with(|c: char| c.is_ascii_digit() || c == '.')
    {
        return Ok(NOW);
    }
    let from = cursor.duration("a time")?;
    let here = *cursor;
    let to = if cursor.eat("~") {
        cursor.eat("+");
        cursor.duration("a time")?
    } else {
        from
    };
    if to < from {
        return Err(here.wrong("a time that is not before the first"));
    }
    Ok(if relative {
        When::Relative { from, to }
    } else {
        When::Absolute { from, to }
    })
}

fn actions(cursor: &mut Cursor<'_>) -> Parsed<Vec<Action>> {
    if cursor.eat("<") {
        return Ok(segment::segments(cursor)?
            .into_iter()
            .map(Action::Inject)
            .collect());
    }
    if cursor.eat(">") {
        return Ok(segment::segments(cursor)?
            .into_iter()
            .map(Action::Expect)
            .collect());
    }
    let action = if cursor.eat("!") {
        Action::Happens(happening(cursor)?)
    } else if cursor.eat("?") {
        Action::Ask(question(cursor)?)
    } else if cursor.eat("=") {
        Action::Shown(shown(cursor)?)
    } else {
        Action::Call(call(cursor)?)
    };
    Ok(vec![action])
}

fn happening(cursor: &mut Cursor<'_>) -> Parsed<Happening> {
    const NAMES: [&str; 12] = [
        "incoming",
        "established",
        "peer_closed",
        "reset",
        "refused",
        "timed_out",
        "closed",
        "time_wait_over",
        "mss_changed",
        "urgent",
        "no_answer",
        "unreachable",
    ];
    let here = *cursor;
    let name = cursor.word("an event")?;
    if !NAMES.contains(&name) {
        return Err(here.wrong(&format!("an event: one of {}", NAMES.join(", "))));
    }
    let value = match name {
        "mss_changed" => Some(cursor.number("the segment size")?),
        _ => None,
    };
    let name = name.to_owned();
    Ok(Happening { name, value })
}

fn question(cursor: &mut Cursor<'_>) -> Parsed<Question> {
    let here = *cursor;
    let name = cursor.word("what to look at")?;
    if !crate::look::NAMES.contains(&name) {
        let names = crate::look::NAMES.join(", ");
        return Err(here.wrong(&format!("one of {names}")));
    }
    let name = name.to_owned();
    const OPS: [(&str, Op); 6] = [
        ("==", Op::Is),
        ("!=", Op::IsNot),
        ("<=", Op::AtMost),
        (">=", Op::AtLeast),
        ("<", Op::Less),
        (">", Op::More),
    ];
    let op = OPS.into_iter().find(|(sign, _)| cursor.eat(sign));
    let (_, op) = op.ok_or_else(|| cursor.wrong("==, !=, <, <=, > or >="))?;
    let value = value(cursor)?;
    Ok(Question { name, op, value })
}

fn value(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    let mut ahead = *cursor;
    let text = ahead.chunk("a number, a time or a word")?;
    let number = text.split('*').next().and_then(|count| count.parse().ok());
    if let Some(count) = number {
        *cursor = ahead;
        let of = text.split_once('*').map(|(_, of)| of.to_owned());
        return Ok(Value::Number { count, of });
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return cursor.duration("a number or a time").map(Value::Time);
    }
    *cursor = ahead;
    Ok(Value::Word(text.to_owned()))
}

fn shown(cursor: &mut Cursor<'_>) -> Parsed<Shown> {
    let mut shown = Shown::default();
    if cursor.eat_word("new") {
        let mut ranges = Vec::new();
        if !cursor.eat_word("none") {
            while ranges.is_empty() || cursor.remaining().starts_with(|c: char| c.is_ascii_digit())
            {
                let start = cursor.number("where the octets begin, or `none`")?;
                cursor.expect(":")?;
                ranges.push((start, cursor.number("where the octets end")?));
            }
        }
        shown.new = Some(ranges);
    }
    if cursor.eat_word("in_order") {
        shown.in_order = Some(cursor.number("the next sequence number")?);
    }
    if shown == Shown::default() {
        return Err(cursor.wrong("`new` or `in_order`"));
    }
    Ok(shown)
}

fn call(cursor: &mut Cursor<'_>) -> Parsed<Call> {
    let here = *cursor;
    let expected = "<, >, !, ?, =, or a call: connect, listen, unlisten, send, close, abort, \
                    consumed, link, incarnation, icmp, \
                    keepalive, user_timeout";
    match cursor.word(expected)? {
        "connect" => Ok(Call::Connect {
            mss: if cursor.eat("mss=") {
                cursor.number("octets")?
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
            let first = cursor.number::<u32>("the number of octets")?;
            let (count, len) = if cursor.eat("x") {
                (first as usize, cursor.number("the number of octets")?)
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
            mtu: cursor.number("the MTU, in octets")?,
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
