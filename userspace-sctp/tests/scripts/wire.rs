//! Packets of the peer from what a script says, and packets of the stack as a script would say them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use userspace_sctp::Tsn;
use userspace_sctp::cause::{Cause, Causes};
use userspace_sctp::chunk::{Chunk, Data, GapBlock, Init, Sack};
use userspace_sctp::packet::{Header, Packet, Writer, verify};
use userspace_sctp::parameter::{self, Parameter, Parameters};

/// What both sides' numbers are counted from.
#[derive(Debug, Clone, Default)]
pub struct Base {
    /// Our tag, and the TSN before our first.
    pub tag: u32,
    pub tsn: u32,
    /// The tag in our latest INIT ACK, and its cookie.
    pub offered: u32,
    pub cookie: Vec<u8>,
}

/// The peer's tag, and the TSN before its first.
pub const PEERS_TAG: u32 = 0x5555_0001;
pub const PEERS_TSN: u32 = u32::MAX - 2;
const COOKIE: &[u8] = b"the peer's cookie";

/// A chunk's name and what is said of it.
pub type Said = (String, BTreeMap<String, String>);

/// `NAME key=value key, NAME ...`
pub fn said(text: &str) -> Vec<Said> {
    let of = |chunk: &str| {
        let mut words = chunk.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or((word, "yes"));
            (key.to_owned(), value.to_owned())
        };
        (name, words.map(pair).collect())
    };
    text.split(',').map(of).collect()
}

fn number(all: &BTreeMap<String, String>, key: &str, default: u32) -> Result<u32, String> {
    let Some(text) = all.get(key) else {
        return Ok(default);
    };
    text.parse()
        .map_err(|_| format!("{key}={text} is no number"))
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |at: usize| {
        let pair = text.get(at..at + 2);
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    (0..text.len())
        .step_by(2)
        .map(|at| digit(at).ok_or_else(|| format!("{text} is not hexadecimal")))
        .collect()
}

/// A whole parameter, cause or chunk of a type, with a value.
fn element(head: &str, value: &[u8]) -> Result<Vec<u8>, String> {
    let mut whole = hex(head)?;
    whole.extend(((4 + value.len()) as u16).to_be_bytes());
    whole.extend(value);
    whole.resize(whole.len().next_multiple_of(4), 0);
    Ok(whole)
}

fn parameters(all: &BTreeMap<String, String>, is_ack: bool) -> Result<Vec<u8>, String> {
    let mut buffer = [0; 500];
    let mut writer = parameter::Writer::new(&mut buffer);
    if is_ack && !all.contains_key("nocookie") {
        let put = writer.put(&Parameter::StateCookie(COOKIE));
        put.map_err(|error| error.to_string())?;
    }
    if let Some(addr) = all.get("addr") {
        let addr: IpAddr = addr.parse().map_err(|_| format!("{addr} is no address"))?;
        let put = writer.put(&Parameter::Address(addr));
        put.map_err(|error| error.to_string())?;
    }
    let len = writer.finish().next_multiple_of(4);
    let mut bytes = buffer[..len].to_vec();
    // Those that the stack never writes: type and value.
    for (key, head) in [("host", "000b"), ("types", "000c"), ("preserve", "0009")] {
        if let Some(value) = all.get(key) {
            bytes.extend(element(head, &hex(value)?)?);
        }
    }
    if let Some(head) = all.get("unknown") {
        bytes.extend(element(head, b"what")?);
    }
    Ok(bytes)
}

/// Appends a chunk to the packet's bytes.
fn chunk(bytes: &mut Vec<u8>, (name, all): &Said, base: &Base) -> Result<(), String> {
    let get = |key, default| number(all, key, default);
    let reflected = all.contains_key("T");
    let is_ack = name == "INIT_ACK";
    let parameters = match name.as_str() {
        "INIT" | "INIT_ACK" => parameters(all, is_ack)?,
        _ => Vec::new(),
    };
    let causes = match all.get("cause") {
        Some(code) => element(code, &hex(all.get("info").map_or("", |info| info))?)?,
        None => Vec::new(),
    };
    let causes = Causes::new(&causes);
    let payload = vec![7; get("len", 10)? as usize];
    let gaps: Vec<u8> = match all.get("gap") {
        None => Vec::new(),
        Some(gap) => {
            let (start, end) = gap.split_once(':').ok_or("gap=FIRST:LAST")?;
            let number = |text: &str| text.parse().map_err(|_| format!("gap={gap}"));
            let block = GapBlock {
                start: number(start)?,
                end: number(end)?,
            };
            block.bytes().to_vec()
        }
    };
    let mut cookie = base.cookie.clone();
    if all.contains_key("damaged") {
        let last = cookie.last_mut().ok_or("no cookie yet")?;
        *last ^= 1;
    }
    let info = hex(all.get("info").map_or("00010008abcdef01", |info| info))?;
    let init = Init {
        tag: get("tag", PEERS_TAG)?,
        window: get("window", 100_000)?,
        outbound_streams: get("os", 10)? as u16,
        inbound_streams: get("is", 10)? as u16,
        initial_tsn: Tsn(PEERS_TSN.wrapping_add(1)),
        parameters: Parameters::new(&parameters),
    };
    let ours = |count: u32| Tsn(base.tsn.wrapping_add(count));
    let chunk = match name.as_str() {
        "INIT" => Chunk::Init(init),
        "INIT_ACK" => Chunk::InitAck(init),
        "COOKIE_ECHO" => Chunk::CookieEcho(&cookie),
        "COOKIE_ACK" => Chunk::CookieAck,
        "DATA" => Chunk::Data(Data {
            tsn: Tsn(PEERS_TSN.wrapping_add(get("tsn", 1)?)),
            stream: get("sid", 1)? as u16,
            sequence: 0,
            protocol: 16,
            unordered: !all.contains_key("ordered"),
            begin: !all.contains_key("middle") && !all.contains_key("last"),
            end: !all.contains_key("middle") && !all.contains_key("first"),
            immediate: all.contains_key("immediate"),
            payload: &payload,
        }),
        "SACK" => Chunk::Sack(Sack::new(
            ours(get("cum", 0)?),
            get("window", 100_000)?,
            &gaps,
            &[],
        )),
        "HEARTBEAT" => Chunk::Heartbeat(&info),
        "HEARTBEAT_ACK" => Chunk::HeartbeatAck(&info),
        "ABORT" => Chunk::Abort { reflected, causes },
        "ERROR" => Chunk::Error(causes),
        "SHUTDOWN" => Chunk::Shutdown {
            cumulative: ours(get("cum", 0)?),
        },
        "SHUTDOWN_ACK" => Chunk::ShutdownAck,
        "SHUTDOWN_COMPLETE" => Chunk::ShutdownComplete { reflected },
        // A type and flags of one's own.
        "CHUNK" => {
            let head = all.get("type").ok_or("CHUNK type=TTFF")?;
            bytes.extend(element(head, b"what")?);
            return Ok(());
        }
        other => return Err(format!("unknown chunk {other}")),
    };
    let mut buffer = [0; 2000];
    let header = Header {
        source: 1,
        destination: 1,
        tag: 0,
    };
    let mut writer = Writer::new(&mut buffer, header).map_err(|error| error.to_string())?;
    writer.chunk(&chunk).map_err(|error| error.to_string())?;
    let len = writer.finish();
    bytes.extend(&buffer[12..len]);
    Ok(())
}

pub fn packet(
    header: Header,
    chunks: &[Said],
    base: &Base,
    more: &BTreeMap<String, String>,
) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 12];
    for said in chunks {
        chunk(&mut bytes, said, base)?;
    }
    let cut = number(more, "cut", 0)? as usize;
    bytes.truncate(bytes.len() - cut);
    bytes[..2].copy_from_slice(&header.source.to_be_bytes());
    bytes[2..4].copy_from_slice(&header.destination.to_be_bytes());
    bytes[4..8].copy_from_slice(&header.tag.to_be_bytes());
    let sum = crc32c::crc32c(&bytes) ^ u32::from(more.contains_key("damaged"));
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

fn codes(causes: &Causes<'_>) -> String {
    let codes: Vec<_> = causes
        .iter()
        .map(|cause| match cause {
            Cause::InvalidStream(stream) => format!("1:{stream}"),
            _ => cause
                .code()
                .map_or("none".to_owned(), |code| code.to_string()),
        })
        .collect();
    codes.join("+")
}

fn unrecognized(parameters: &Parameters<'_>) -> String {
    let whole = parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Unrecognized(whole) => whole.first_chunk::<2>().copied(),
        _ => None,
    });
    let heads: Vec<_> = whole.map(|[a, b]| format!("{a:02x}{b:02x}")).collect();
    heads.join("+")
}

/// A packet of ours: its tag, and what can be said of it. Notes our numbers.
pub fn read(bytes: &[u8], base: &mut Base, is_established: bool) -> (u32, Vec<Said>) {
    verify(bytes).expect("our checksum is right");
    let packet = Packet::parse(bytes).expect("our packet can be read");
    let chunks = packet.chunks().map(|chunk| {
        let mut all = BTreeMap::new();
        let mut say = |key: &str, value: String| drop(all.insert(key.to_owned(), value));
        let name = match chunk {
            Chunk::Init(init) | Chunk::InitAck(init) => {
                let is_ack = matches!(chunk, Chunk::InitAck(_));
                let is_first = is_ack || base.tag == 0;
                assert!(
                    is_first || base.tag == init.tag,
                    "an INIT again has its tag"
                );
                if !is_established {
                    (base.tag, base.tsn) = (init.tag, init.initial_tsn.previous().0);
                }
                assert_ne!(init.tag, 0, "an Initiate Tag is never 0");
                for parameter in init.parameters.iter() {
                    match parameter {
                        Parameter::StateCookie(cookie) => {
                            (base.offered, base.cookie) = (init.tag, cookie.to_vec());
                        }
                        Parameter::CookiePreservative(more) => {
                            say("preserve", more.as_millis().to_string());
                        }
                        _ => {}
                    }
                }
                say("os", init.outbound_streams.to_string());
                say("is", init.inbound_streams.to_string());
                say("unrecognized", unrecognized(&init.parameters));
                if is_ack { "INIT_ACK" } else { "INIT" }
            }
            Chunk::Data(data) => {
                say("tsn", data.tsn.0.wrapping_sub(base.tsn).to_string());
                say("len", data.payload.len().to_string());
                say("sid", data.stream.to_string());
                "DATA"
            }
            Chunk::Sack(sack) => {
                say("cum", sack.cumulative.0.wrapping_sub(PEERS_TSN).to_string());
                let gaps = sack
                    .blocks()
                    .map(|gap| format!("{}:{}", gap.start, gap.end));
                say("gap", gaps.collect::<Vec<_>>().join("+"));
                say("dups", sack.duplicates().count().to_string());
                "SACK"
            }
            Chunk::Heartbeat(_) => "HEARTBEAT",
            Chunk::HeartbeatAck(info) => {
                let digits = info.iter().map(|byte| format!("{byte:02x}"));
                say("info", digits.collect());
                "HEARTBEAT_ACK"
            }
            Chunk::Abort { reflected, causes } => {
                say("T", if reflected { "yes" } else { "no" }.to_owned());
                say("cause", codes(&causes));
                "ABORT"
            }
            Chunk::Error(causes) => {
                say("cause", codes(&causes));
                "ERROR"
            }
            Chunk::Shutdown { cumulative } => {
                say("cum", cumulative.0.wrapping_sub(PEERS_TSN).to_string());
                "SHUTDOWN"
            }
            Chunk::ShutdownAck => "SHUTDOWN_ACK",
            Chunk::ShutdownComplete { reflected } => {
                say("T", if reflected { "yes" } else { "no" }.to_owned());
                "SHUTDOWN_COMPLETE"
            }
            Chunk::Pad { .. } => "PAD",
            Chunk::CookieEcho(cookie) => {
                assert_eq!(cookie, COOKIE, "the peer's cookie, as it was");
                "COOKIE_ECHO"
            }
            Chunk::CookieAck => "COOKIE_ACK",
            Chunk::Unknown { report, .. } => panic!("we sent an unknown chunk: {report:?}"),
            Chunk::Malformed { kind, .. } => panic!("we sent a malformed chunk {kind}"),
        };
        (name.to_owned(), all)
    });
    let chunks = chunks.collect();
    (packet.header.tag, chunks)
}
