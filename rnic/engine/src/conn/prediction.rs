//! Header prediction: the headers that a connection's next segment will have in the common case. A segment is
//! recognised by comparing its headers with those of an earlier one; only the fields that differ are read.

use rnic_net::{HeaderPrediction, Match, Path, PredictedFields};
use userspace_net::Ecn;
use userspace_tcp::{Flags, TcpHeader};

/// So many segments that were parsed, each by itself, make their headers worth learning: that takes as
/// long as to parse two or three.
const LEARNT_AFTER: u8 = 8;

/// What a connection's next segments are likely to say. Made when the connection is, so that the data
/// path allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    learnt: Option<Learnt>,
    /// Segments that were parsed since.
    parsed: u8,
    /// Each segment of the last bytes delivered in place was an FPDU with a CRC. The CRC of following
    /// segments is then verified in the same pass as the TCP checksum.
    pub segments_are_fpdus: bool,
}

/// What the headers of a connection's segments have in common.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// The way back to the peer.
    pub path: Path,
    /// The port that they come from.
    pub port: usize,
    pub ecn: Ecn,
    header: TcpHeader,
    headers: HeaderPrediction,
}

impl Learnt {
    /// What a frame says that came by `port`, if it has these headers. Its payload is not looked at.
    #[inline(always)]
    pub fn compare(&self, frame: &[u8], port: usize) -> Option<Match> {
        self.headers.compare(frame).filter(|_| self.port == port)
    }

    /// Whether a frame with these headers, which says this, has a partial checksum.
    pub fn has_partial_checksum(&self, frame: &[u8], says: &PredictedFields) -> bool {
        self.headers.has_partial_checksum(frame, says)
    }

    /// The TCP header of a segment that says this.
    #[inline]
    pub fn header(&self, says: &PredictedFields) -> TcpHeader {
        TcpHeader {
            seq: says.seq,
            ack: says.ack,
            window: says.window,
            flags: says.flags,
            ..self.header
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed<'a> {
    pub path: &'a Path,
    pub port: usize,
    pub ecn: Ecn,
    pub header: &'a TcpHeader,
    /// Others followed it that only continue it.
    pub several: bool,
}

impl Prediction {
    /// What was learnt, if anything was.
    #[inline]
    pub fn learnt(&self) -> Option<&Learnt> {
        self.learnt.as_ref()
    }

    /// A segment was parsed. Its headers are learnt when more like them are to be expected, which takes two
    /// conditions. First, it says no more than most segments do. Second, it is the first of several, follows
    /// others of its connection, or differs from those before only in its timestamps, which advance each
    /// millisecond. `headers` gives the headers.
    pub fn parsed(
        &mut self,
        segment: &Parsed<'_>,
        headers: impl FnOnce() -> Option<HeaderPrediction>,
    ) {
        let Parsed {
            path,
            port,
            ecn,
            header,
            several,
        } = *segment;
        let plain =
            header.flags | Flags::PSH == Flags::ACK | Flags::PSH && header.options.sack.is_empty();
        if !plain {
            return;
        }
        self.parsed = self.parsed.saturating_add(1);
        let has_timestamps = |header: &TcpHeader| header.options.timestamps.is_some();
        let as_before = self.learnt.as_ref().is_some_and(|learnt| {
            (&learnt.path, learnt.port, learnt.ecn) == (path, port, ecn)
                && has_timestamps(&learnt.header) == has_timestamps(header)
        });
        if !several && !as_before && self.parsed < LEARNT_AFTER {
            return;
        }
        if let Some(headers) = headers() {
            self.parsed = 0;
            self.learnt = Some(Learnt {
                path: *path,
                port,
                ecn,
                header: *header,
                headers,
            });
        }
    }

    /// What was learnt says no more what parsing would.
    pub fn forget(&mut self) {
        self.learnt = None;
    }
}

#[cfg(test)]
mod tests {
    use rnic_net::{PathDefaults, Payload, write_segment};
    use userspace_net::{Endpoint, FourTuple, checksum};
    use userspace_tcp::{Options, SackBlock, SeqNum, Timestamps};

    use super::*;

    fn tuple() -> FourTuple {
        let end = |address: &str| Endpoint::new(address.parse().unwrap(), 7174);
        FourTuple::new(end("198.18.0.1"), end("198.18.0.2"))
    }

    fn path() -> Path {
        let defaults = PathDefaults::new(1500);
        Path {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            mtu: defaults.mtu,
            hop_limit: 64,
        }
    }

    fn header(value: Option<u32>) -> TcpHeader {
        TcpHeader {
            source_port: 7174,
            destination_port: 7174,
            seq: SeqNum(1),
            flags: Flags::ACK,
            options: Options {
                timestamps: value.map(|value| Timestamps { value, echo: 1 }),
                ..Options::default()
            },
            ..TcpHeader::default()
        }
    }

    /// A frame with such a segment, and where its payload begins.
    fn frame(header: &TcpHeader) -> (Vec<u8>, usize) {
        let headers = path().headers_len(tuple().remote.addr) + header.header_len();
        let mut out = vec![0; headers];
        let payload = Payload {
            len: 64,
            sum: checksum::sum(&[7; 64]),
        };
        write_segment(&path(), &tuple(), Ecn::NotEct, header, payload, &mut out).unwrap();
        out.extend([7; 64]);
        (out, headers)
    }

    /// A segment comes by itself; says whether its headers were predicted.
    fn comes(prediction: &mut Prediction, header: &TcpHeader, several: bool) -> bool {
        let (frame, payload) = frame(header);
        let learnt = prediction.learnt();
        if learnt.is_some_and(|learnt| learnt.compare(&frame, 0).is_some()) {
            return true;
        }
        let segment = Parsed {
            path: &path(),
            port: 0,
            ecn: Ecn::NotEct,
            header,
            several,
        };
        prediction.parsed(&segment, || HeaderPrediction::of(&frame, payload));
        false
    }

    #[test]
    fn headers_are_predicted_after_some_segments_or_the_first_of_several() {
        let mut prediction = Prediction::default();
        for _ in 0..LEARNT_AFTER {
            assert!(!comes(&mut prediction, &header(None), false));
        }
        assert!(comes(&mut prediction, &header(None), false));
        prediction.forget();
        assert!(!comes(&mut prediction, &header(None), true));
        assert!(comes(&mut prediction, &header(None), false));
        let (frame, _) = frame(&header(None));
        let learnt = prediction.learnt().unwrap();
        assert!(learnt.compare(&frame, 1).is_none(), "another port");
    }

    #[test]
    fn one_segment_is_parsed_when_the_time_of_timestamps_goes_on() {
        let mut prediction = Prediction::default();
        comes(&mut prediction, &header(Some(7)), true);
        for value in 8..100 {
            assert!(!comes(&mut prediction, &header(Some(value)), false));
            assert!(comes(&mut prediction, &header(Some(value)), false));
        }
        // What says something else is not what will come next.
        let mut marked = header(Some(99));
        marked.flags |= Flags::ECE;
        let mut sack = header(Some(100));
        sack.options.sack.push(SackBlock::default());
        for other in [marked, sack] {
            assert!(!comes(&mut prediction, &other, true));
            assert!(comes(&mut prediction, &header(Some(99)), false));
        }
    }
}
