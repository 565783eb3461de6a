//! Segments, written from a template and read by comparing them with the one before.

use std::net::{IpAddr, Ipv4Addr};

use rnic_net::{
    ETHERNET_HEADER, HeaderPrediction, IPV4_HEADER, Path, PathDefaults, Payload, TCP_HEADER,
    write_segment,
};
use rnic_proto::crc::RESIDUE;
use rnic_proto::ddp::header::TAGGED_LEN;
use rnic_proto::mpa::fpdu;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::segment::write;
use rnic_proto::{Stag, TaggedOffset};
use userspace_net::checksum::PartialSum;
use userspace_net::{Ecn, Endpoint, FourTuple};
use userspace_tcp::{Flags, Options, Segment, SeqNum, TIMESTAMPS_LEN, TcpHeader, Timestamps};

use super::MESSAGE;

const TCP: usize = ETHERNET_HEADER + IPV4_HEADER;
const OPTIONS: usize = TCP + TCP_HEADER;
/// Bytes ahead of an FPDU.
pub(super) const HEADERS: usize = OPTIONS + TIMESTAMPS_LEN;
/// Bytes of an FPDU that are ahead of its payload.
const FPDU_AHEAD: usize = fpdu::HEADER_LEN + TAGGED_LEN;
/// Bytes of a segment that are no payload. FPDUs have no padding here: payloads are of whole words.
pub(super) const OVERHEAD: usize = HEADERS + FPDU_AHEAD + fpdu::CRC_LEN;

/// The memory that is written to.
const STAG: Stag = Stag(0x1122_3300);
/// DDP's control field's bit of a message's last segment, in the word that the length is in.
const LAST: u32 = 0x4000;
/// What the link takes at the most, for parsing only.
const MTU: u32 = 9000;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Whose memory is read.
    Source = 1,
    /// Whose memory is written.
    Sink = 2,
}

impl End {
    fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self as u8]
    }

    fn endpoint(self) -> Endpoint {
        let address = Ipv4Addr::new(192, 0, 2, self as u8);
        Endpoint::new(IpAddr::V4(address), 40_000 + self as u16)
    }

    fn other(self) -> Self {
        match self {
            Self::Source => Self::Sink,
            Self::Sink => Self::Source,
        }
    }

    fn tuple(self) -> FourTuple {
        FourTuple {
            local: self.endpoint(),
            remote: self.other().endpoint(),
        }
    }
}

/// Bytes of payload in the longest segment of a frame of so many bytes.
pub(super) fn payload_of(frame: usize) -> Option<usize> {
    let emss = frame.checked_sub(HEADERS)?;
    let payload = fpdu::mulpdu(emss, Markers::Off).checked_sub(TAGGED_LEN)?;
    (payload > 0 && payload + OVERHEAD <= frame).then_some(payload)
}

/// What differs between the headers of segments of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) seq: SeqNum,
    pub(super) ack: SeqNum,
    pub(super) times: Timestamps,
}

/// The headers of all segments that one end sends with so many bytes behind them.
#[derive(Debug)]
pub(super) struct Template {
    bytes: [u8; HEADERS],
    /// Of the pseudo-header and TCP's, without what differs.
    sum: PartialSum,
}

impl Template {
    pub(super) fn new(end: End, bytes: usize) -> Self {
        let path = Path {
            src_mac: end.mac(),
            dst_mac: end.other().mac(),
            vlan: None,
            mtu: MTU,
            hop_limit: 64,
        };
        let header = TcpHeader {
            source_port: end.tuple().local.port,
            destination_port: end.tuple().remote.port,
            flags: Flags::ACK,
            window: u16::MAX,
            options: Options {
                timestamps: Some(Timestamps::default()),
                ..Options::default()
            },
            ..TcpHeader::default()
        };
        let payload = Payload {
            len: bytes,
            sum: PartialSum::ZERO,
        };
        let mut out = [0; HEADERS];
        write_segment(&path, &end.tuple(), Ecn::NotEct, &header, payload, &mut out)
            .expect("an IPv4 packet of a frame has room for these headers");
        // It is the complement of the sum of all else.
        let sum = !u16::from_be_bytes([out[TCP + 16], out[TCP + 17]]);
        out[TCP + 16..TCP + 18].fill(0);
        Self {
            bytes: out,
            sum: PartialSum::from_folded(sum),
        }
    }

    /// Writes the headers to the front of `out`; `payload` is the sum of what is behind them.
    #[inline]
    pub(super) fn write(&self, out: &mut [u8], fields: &Fields, payload: u16) {
        let Fields { seq, ack, times } = *fields;
        let words = [seq.0, ack.0, times.value, times.echo];
        let differ = PartialSum::of_words(words.map(u64::from).iter().sum());
        let sum = self.sum + differ + PartialSum::from_folded(payload);
        let out: &mut [u8; HEADERS] = out
            .first_chunk_mut()
            .expect("a frame has room for its headers");
        *out = self.bytes;
        let mut put = |at: usize, word: u32| out[at..at + 4].copy_from_slice(&word.to_be_bytes());
        put(TCP + 4, seq.0);
        put(TCP + 8, ack.0);
        put(OPTIONS + 4, times.value);
        put(OPTIONS + 8, times.echo);
        out[TCP + 16..TCP + 18].copy_from_slice(&(!sum.folded()).to_be_bytes());
    }
}

/// Writes an FPDU with these bytes of a message, which are to be placed at `to`, and gives its sum.
#[inline]
pub(super) fn write_fpdu(out: &mut [u8], from: &[u8], to: usize, last: bool) -> u16 {
    let (head, rest) = out.split_at_mut(FPDU_AHEAD);
    let (payload, crc) = rest.split_at_mut(from.len());
    let mut words = write(STAG, TaggedOffset(to as u64), last).to_words();
    words[0] |= ((TAGGED_LEN + from.len()) as u32) << 16;
    for (place, word) in head.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    let ahead = rnic_crc::check_words(0, words);
    let all = rnic_crc::copy(ahead.crc, from, payload);
    let bytes = all.crc.to_le_bytes();
    crc.copy_from_slice(&bytes);
    let sums = [all.sum, rnic_crc::sum(&bytes)];
    sums.into_iter().fold(ahead.sum, rnic_crc::add_sums)
}

/// What one end makes of the other's segments.
#[derive(Debug)]
pub(super) struct Reader {
    end: End,
    known: Option<HeaderPrediction>,
    /// The last timestamp, which is to be echoed.
    time: u32,
}

/// A sound segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read<'a> {
    pub(super) seq: SeqNum,
    pub(super) ack: SeqNum,
    /// What is behind its headers.
    pub(super) bytes: &'a [u8],
    /// Whether the bytes are an FPDU whose CRC is right.
    pub(super) crc: bool,
}

impl Reader {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            known: None,
            time: 0,
        }
    }

    /// The timestamp that a segment of ours echoes.
    pub(super) fn time(&self) -> u32 {
        self.time
    }

    /// What a frame says that has a segment of this connection, if its checksums are right.
    #[inline]
    pub(super) fn read<'a>(&mut self, frame: &'a [u8]) -> Option<Read<'a>> {
        let like = match self.known.as_ref().and_then(|known| known.compare(frame)) {
            Some(like) => like,
            None => self.learn(frame)?.compare(frame)?,
        };
        let bytes = frame.get(like.says.payload.clone())?;
        let checks = rnic_crc::check(0, bytes);
        like.is_right_with(checks.sum).then_some(Read {
            seq: like.says.seq,
            ack: like.says.ack,
            bytes,
            crc: checks.crc == RESIDUE,
        })
    }

    /// Takes a frame apart whose headers are unlike the last one's: its timestamps are, as a rule.
    #[cold]
    fn learn(&mut self, frame: &[u8]) -> Option<&HeaderPrediction> {
        let parsed = rnic_net::parse(frame, &PathDefaults::new(MTU)).ok()?;
        let segment = Segment::parse(frame.get(parsed.tcp()?)?).ok()?;
        let time = segment.header.options.timestamps?.value;
        let ours = parsed.tuple == self.end.tuple() && segment.header.flags == Flags::ACK;
        // PAWS (RFC 7323 section 5.3).
        if !ours || time.wrapping_sub(self.time).cast_signed() < 0 {
            return None;
        }
        self.time = time;
        self.known = HeaderPrediction::of(frame, parsed.data.end - segment.payload.len());
        self.known.as_ref()
    }
}

/// Where the bytes of an FPDU go whose CRC is right, and which they are, if that is memory of ours.
#[inline]
pub(super) fn read_fpdu(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<FPDU_AHEAD>()?;
    let payload = rest.get(..rest.len().checked_sub(fpdu::CRC_LEN)?)?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let mut same = write(STAG, TaggedOffset(0), false).to_words();
    same[0] |= ((TAGGED_LEN + payload.len()) as u32) << 16;
    let to = usize::try_from(u64::from(word(8)) << 32 | u64::from(word(12))).ok()?;
    let fits = MESSAGE
        .checked_sub(to)
        .is_some_and(|room| payload.len() <= room);
    let like = word(0) & !LAST == same[0] && word(4) == same[1];
    (like && fits).then_some((to, payload))
}

#[cfg(test)]
mod tests;
