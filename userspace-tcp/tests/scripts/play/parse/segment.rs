//! `P. 1:1001(1000) ack 1 win 100 <mss 1460,sackOK> ecn=ce`.

use userspace_net::Ecn;

use crate::lexer::{Cursor, Parsed};
use crate::syntax::{Field, Opt, OptionsLine, SegmentLine};

/// The letters of the control bits, from the lowest.
pub const FLAGS: &str = "FSRP.UEW";

const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Reads one line's segments: `(3x1000)` are three.
pub fn segments(cursor: &mut Cursor<'_>) -> Parsed<Vec<SegmentLine>> {
    let flags = flags(cursor)?;
    let mut seq = field(cursor, "a sequence number")?;
    let (len, count) = extent(cursor, seq)?;
    let mut line = SegmentLine {
        flags,
        seq,
        len,
        ack: None,
        window: None,
        urgent: None,
        options: OptionsLine::default(),
        ecn: None,
        fragment: None,
    };
    if matches!(flags, Field::Is(bits) if bits & ACK != 0) {
        cursor.expect("ack")?;
        line.ack = Some(field(cursor, "the acknowledgment number")?);
    }
    loop {
        if cursor.eat_word("win") {
            line.window = Some(field(cursor, "the window field")?);
        } else if matches!(flags, Field::Is(bits) if bits & URG != 0) && cursor.eat_word("urg") {
            line.urgent = Some(cursor.number("the urgent pointer")?);
        } else if cursor.eat("<") {
            line.options = options(cursor)?;
        } else if cursor.eat("ecn=") {
            line.ecn = Some(codepoint(cursor)?);
        } else if cursor.eat_word("frag") {
            line.fragment = Some(cursor.number("the most bytes of a fragment")?);
        } else {
            break;
        }
    }
    let mut lines = Vec::new();
    for _ in 0..count {
        line.seq = seq;
        lines.push(line.clone());
        if let (Field::Is(at), Field::Is(len)) = (&mut seq, len) {
            *at += i64::from(len);
        }
    }
    Ok(lines)
}

fn flags(cursor: &mut Cursor<'_>) -> Parsed<Field<u8>> {
    let expected = "flags out of SFRP.UEW, or *";
    let here = *cursor;
    let mut bits = 0;
    for letter in cursor.chunk(expected)?.chars() {
        match FLAGS.find(if letter == 'A' { '.' } else { letter }) {
            Some(bit) => bits |= 1 << bit,
            None if letter == '*' => return Ok(Field::Any),
            None => return Err(here.wrong(expected)),
        }
    }
    Ok(Field::Is(bits))
}

pub fn field<T: std::str::FromStr>(cursor: &mut Cursor<'_>, expected: &str) -> Parsed<Field<T>> {
    if cursor.eat("*") {
        Ok(Field::Any)
    } else {
        let expected = format!("{expected} or *");
        cursor.number(&expected).map(Field::Is)
    }
}

/// `:1001(1000)` or `:10001(10x1000)`: how long each is, and how many.
fn extent(cursor: &mut Cursor<'_>, start: Field<i64>) -> Parsed<(Field<u32>, u32)> {
    cursor.expect(":")?;
    let here = *cursor;
    let end = field::<i64>(cursor, "the sequence number behind the last byte")?;
    cursor.expect("(")?;
    let first = field::<u32>(cursor, "the number of bytes")?;
    let (len, count) = match first {
        Field::Is(count) if cursor.eat("x") => (field(cursor, "the number of bytes")?, count),
        len => (len, 1),
    };
    cursor.expect(")")?;
    if let (Field::Is(start), Field::Is(end), Field::Is(len)) = (start, end, len)
        && start + i64::from(len) * i64::from(count) != end
    {
        let right = start + i64::from(len) * i64::from(count);
        return Err(here.wrong(&format!("`{right}` behind {count} times {len} bytes")));
    }
    Ok((len, count))
}

fn options(cursor: &mut Cursor<'_>) -> Parsed<OptionsLine> {
    let mut options = OptionsLine::default();
    if cursor.eat(">") {
        return Ok(options);
    }
    loop {
        if cursor.eat("*") {
            options.open = true;
        } else if cursor.eat_word("nop") || cursor.eat_word("eol") {
        } else if cursor.eat_word("nots") {
            options.no_timestamps = true;
        } else {
            options.list.push(option(cursor)?);
        }
        if cursor.eat(">") {
            return Ok(options);
        }
        cursor.expect(",")?;
    }
}

fn option(cursor: &mut Cursor<'_>) -> Parsed<Opt> {
    if cursor.eat_word("mss") {
        return field(cursor, "bytes").map(Opt::Mss);
    }
    if cursor.eat_word("wscale") {
        return field(cursor, "the shift").map(Opt::WindowScale);
    }
    if cursor.eat_word("sackOK") {
        return Ok(Opt::SackPermitted);
    }
    if cursor.eat_word("TS") {
        cursor.expect("val")?;
        let value = field(cursor, "a timestamp")?;
        cursor.expect("ecr")?;
        let echo = field(cursor, "a timestamp")?;
        return Ok(Opt::Timestamps { value, echo });
    }
    if cursor.eat_word("sack") {
        let mut blocks = Vec::new();
        loop {
            let left = cursor.number("the left edge of a block")?;
            cursor.expect(":")?;
            blocks.push((left, cursor.number("the right edge of a block")?));
            let mut ahead = *cursor;
            if ahead.number::<i64>("").is_err() {
                return Ok(Opt::Sack(blocks));
            }
        }
    }
    if cursor.eat_word("raw") {
        let here = *cursor;
        let digits = cursor.word("hexadecimal bytes")?;
        let bytes = (0..digits.len()).step_by(2).map(|at| {
            let pair = digits.get(at..at + 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        return bytes
            .map(Opt::Raw)
            .ok_or_else(|| here.wrong("hexadecimal bytes"));
    }
    Err(cursor.wrong("an option: mss, wscale, sackOK, TS, sack, nop, eol, raw, nots or *"))
}

fn codepoint(cursor: &mut Cursor<'_>) -> Parsed<Ecn> {
    let here = *cursor;
    match cursor.word("a codepoint")? {
        "not" => Ok(Ecn::NotEct),
        "ect0" => Ok(Ecn::Ect0),
        "ect1" => Ok(Ecn::Ect1),
        "ce" => Ok(Ecn::Ce),
        _ => Err(here.wrong("not, ect0, ect1 or ce")),
    }
}
