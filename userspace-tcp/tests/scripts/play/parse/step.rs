//! When a line happens, and what: `+.2 > ...`, `& send 1000`, `? state == ESTABLISHED`.

use crate::lexer::{Cursor, Parsed};
use crate::syntax::{Action, Happening, Op, Place, Question, Shown, Step, Value, When};

use super::{call, segment};

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
        Action::Call(call::call(cursor)?)
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
    let here = *cursor;
    let value = value(cursor)?;
    if let Value::Word(word) = &value
        && name == "state"
        && !crate::look::STATES.contains(&word.as_str())
    {
        let states = crate::look::STATES.join(", ");
        return Err(here.wrong(&format!("a state: one of {states}")));
    }
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
                let start = cursor.number("where the bytes begin, or `none`")?;
                cursor.expect(":")?;
                ranges.push((start, cursor.number("where the bytes end")?));
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
