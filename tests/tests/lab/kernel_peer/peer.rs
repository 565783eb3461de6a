//! An iWARP peer over an ordinary kernel TCP socket.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::LIMIT;

use super::markers::Markers;
use super::wire::{self, Header, ReadRequest, StartFrame};

/// How FPDUs are given to the socket. It has TCP_NODELAY: a write tends to be a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// An FPDU per write.
    Each,
    /// All FPDUs of a message in one write.
    Together,
    /// Pieces of 1 to so many bytes, wherever that cuts.
    Pieces(usize),
    /// An FPDU per write, but its CRC in a write of its own, as siw does.
    CrcApart,
}

/// A whole DDP message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The header of its first segment, which also says `last`.
    pub header: Header,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Fin,
    Reset,
}

/// One end of an MPA connection, over a kernel socket.
pub struct Peer {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
    /// FPDUs carry CRCs.
    pub crc: bool,
    /// Markers in what it receives, and in what it sends.
    pub markers_in: Markers,
    pub markers_out: Markers,
    pub cut: Cut,
    /// The largest ULPDU that it sends.
    pub mulpdu: usize,
    /// The largest FPDU that it takes: what fits a TCP segment.
    pub largest: usize,
    random: Pattern,
    /// Next MSN of [`wire::SEND_QUEUE`] and [`wire::READ_QUEUE`], each way.
    sends: u32,
    reads: u32,
    sends_seen: u32,
    reads_seen: u32,
}

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone().unwrap());
        Self {
            stream,
            reader,
            crc: true,
            markers_in: Markers::default(),
            markers_out: Markers::default(),
            cut: Cut::Each,
            mulpdu: 1440,
            largest: 1460,
            random: Pattern::new(9),
            sends: 1,
            reads: 1,
            sends_seen: 1,
            reads_seen: 1,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the RNIC takes them");
    }

    /// Reads a start-up frame.
    #[track_caller]
    pub fn start_frame(&mut self, key: &[u8; 16]) -> StartFrame {
        let mut head = [0; 20];
        self.reader.read_exact(&mut head).expect("an MPA frame");
        assert_eq!(&head[..16], key, "{}", String::from_utf8_lossy(&head[..16]));
        let mut private_data = vec![0; u16::from_be_bytes([head[18], head[19]]).into()];
        self.reader.read_exact(&mut private_data).unwrap();
        StartFrame {
            flags: head[16],
            revision: head[17],
            private_data,
        }
    }

    /// The FPDUs of a tagged message.
    pub fn tagged(&self, opcode: u8, stag: u32, to: u64, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.segments(bytes, self.mulpdu - 14, |last, at| Header::Tagged {
            last,
            opcode,
            stag,
            to: to + at as u64,
        })
    }

    /// The FPDUs of the next message on the Send queue.
    pub fn untagged(&mut self, opcode: u8, invalidate: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
        let msn = self.sends;
        self.sends += 1;
        self.segments(bytes, self.mulpdu - 18, |last, at| Header::Untagged {
            last,
            opcode,
            invalidate,
            qn: wire::SEND_QUEUE,
            msn,
            mo: u32::try_from(at).unwrap(),
        })
    }

    fn segments(
        &self,
        bytes: &[u8],
        most: usize,
        header: impl Fn(bool, usize) -> Header,
    ) -> Vec<Vec<u8>> {
        if bytes.is_empty() {
            return vec![wire::fpdu(&header(true, 0), &[], self.crc)];
        }
        let count = bytes.len().div_ceil(most);
        let parts = bytes.chunks(most).enumerate();
        parts
            .map(|(index, part)| {
                let header = header(index + 1 == count, index * most);
                wire::fpdu(&header, part, self.crc)
            })
            .collect()
    }

    /// Gives FPDUs to the socket, cut as [`Self::cut`] says.
    pub fn put(&mut self, fpdus: &[Vec<u8>]) {
        let (markers, crc) = (&mut self.markers_out, self.crc);
        let fpdus: Vec<_> = fpdus.iter().map(|fpdu| markers.put(fpdu, crc)).collect();
        match self.cut {
            Cut::Each => fpdus.iter().for_each(|fpdu| self.write(fpdu)),
            Cut::Together => self.write(&fpdus.concat()),
            Cut::CrcApart => {
                for fpdu in &fpdus {
                    let (front, crc) = fpdu.split_at(fpdu.len() - 4);
                    self.write(front);
                    self.write(crc);
                }
            }
            Cut::Pieces(most) => {
                let all = fpdus.concat();
                let mut rest = &all[..];
                while !rest.is_empty() {
                    let length = 1 + self.random.next_u64() as usize % most;
                    let (piece, behind) = rest.split_at(length.min(rest.len()));
                    self.write(piece);
                    rest = behind;
                }
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let fpdus = self.untagged(wire::SEND, 0, bytes);
        self.put(&fpdus);
    }

    pub fn rdma_write(&mut self, stag: u32, to: u64, bytes: &[u8]) {
        let fpdus = self.tagged(wire::WRITE, stag, to, bytes);
        self.put(&fpdus);
    }

    pub fn read_response(&mut self, request: &ReadRequest, bytes: &[u8]) {
        let fpdus = self.tagged(
            wire::READ_RESPONSE,
            request.sink_stag,
            request.sink_to,
            bytes,
        );
        self.put(&fpdus);
    }

    pub fn read_request(&mut self, request: &ReadRequest) {
        let fpdu = self.read_request_fpdu(request);
        self.put(&[fpdu]);
    }

    /// The FPDU of the next RDMA Read Request.
    pub fn read_request_fpdu(&mut self, request: &ReadRequest) -> Vec<u8> {
        let header = Header::Untagged {
            last: true,
            opcode: wire::READ_REQUEST,
            invalidate: 0,
            qn: wire::READ_QUEUE,
            msn: self.reads,
            mo: 0,
        };
        self.reads += 1;
        wire::fpdu(&header, &request.encode(), self.crc)
    }

    /// The next FPDU, without Markers; none when the connection ended between two.
    #[track_caller]
    fn fpdu(&mut self) -> Result<Vec<u8>, End> {
        let (reader, largest) = (&mut self.reader, self.largest);
        let mut begun = false;
        let length = |start| {
            let length = wire::fpdu_length(start);
            assert!(
                length <= largest,
                "an FPDU of {length} bytes does not fit a segment"
            );
            length
        };
        self.markers_in.take(self.crc, length, |bytes| {
            match reader.read_exact(bytes) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(End::Reset),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && !begun => {
                    return Err(End::Fin);
                }
                read => read.expect("an FPDU"),
            }
            begun = true;
            Ok(())
        })
    }

    /// The next message that is more than a repeated indication of a quiet initiator.
    #[track_caller]
    pub fn message(&mut self) -> Result<Message, End> {
        loop {
            let message = self.any_message()?;
            if !is_indication(&message) {
                return Ok(message);
            }
        }
    }

    /// The next message, put together from segments that follow each other without a gap.
    #[track_caller]
    pub fn any_message(&mut self) -> Result<Message, End> {
        let fpdu = self.fpdu()?;
        let (first, payload) = wire::open(&fpdu, self.crc);
        let mut bytes = payload.to_vec();
        let mut done = is_last(&first);
        while !done {
            let fpdu = self.fpdu()?;
            let (header, payload) = wire::open(&fpdu, self.crc);
            done = is_last(&header);
            assert_eq!(header, follows(&first, bytes.len(), done));
            bytes.extend(payload);
        }
        Ok(Message {
            header: first,
            bytes,
        })
    }

    /// The bytes of the Send that must come next, and the STag that it invalidates.
    #[track_caller]
    pub fn take_send(&mut self, with_opcode: u8) -> (Vec<u8>, u32) {
        let message = self.message().expect("a Send");
        let Header::Untagged {
            opcode,
            qn: wire::SEND_QUEUE,
            msn,
            mo: 0,
            invalidate,
            ..
        } = message.header
        else {
            panic!("not a Send: {:?}", message.header);
        };
        assert_eq!((opcode, msn), (with_opcode, self.sends_seen));
        self.sends_seen += 1;
        (message.bytes, invalidate)
    }

    /// The bytes of the tagged message that must come next.
    #[track_caller]
    pub fn take_tagged(&mut self, with_opcode: u8, with_stag: u32, with_to: u64) -> Vec<u8> {
        let message = self.message().expect("a tagged message");
        match message.header {
            Header::Tagged {
                opcode, stag, to, ..
            } if (opcode, stag, to) == (with_opcode, with_stag, with_to) => message.bytes,
            other => panic!("not {with_opcode} to {with_stag:#x}, {with_to:#x}: {other:?}"),
        }
    }

    /// The RDMA Read Request that must come next.
    #[track_caller]
    pub fn take_read_request(&mut self) -> ReadRequest {
        let message = self.message().expect("an RDMA Read Request");
        let expected = Header::Untagged {
            last: true,
            opcode: wire::READ_REQUEST,
            invalidate: 0,
            qn: wire::READ_QUEUE,
            msn: self.reads_seen,
            mo: 0,
        };
        assert_eq!(message.header, expected);
        self.reads_seen += 1;
        ReadRequest::decode(&message.bytes)
    }

    /// The Terminate that must come next, from its control bytes on, and the end behind it.
    #[track_caller]
    pub fn take_terminate(&mut self) -> Vec<u8> {
        let message = self.message().expect("a Terminate");
        let expected = Header::Untagged {
            last: true,
            opcode: wire::TERMINATE,
            invalidate: 0,
            qn: wire::TERMINATE_QUEUE,
            msn: 1,
            mo: 0,
        };
        assert_eq!(message.header, expected);
        message.bytes
    }

    /// The end that must come next.
    #[track_caller]
    pub fn take_end(&mut self) -> End {
        self.message().expect_err("nothing but the end")
    }
}

/// A zero-length RDMA Write that names no memory.
pub fn is_indication(message: &Message) -> bool {
    message.bytes.is_empty()
        && matches!(
            message.header,
            Header::Tagged {
                opcode: wire::WRITE,
                stag: 0,
                to: 0,
                ..
            }
        )
}

fn is_last(header: &Header) -> bool {
    match *header {
        Header::Tagged { last, .. } | Header::Untagged { last, .. } => last,
    }
}

/// What the header of the segment must be that begins `at` bytes behind the first of a message.
fn follows(first: &Header, at: usize, is_last: bool) -> Header {
    let mut next = *first;
    match &mut next {
        Header::Tagged { last, to, .. } => {
            *last = is_last;
            *to += at as u64;
        }
        Header::Untagged { last, mo, .. } => {
            *last = is_last;
            *mo = u32::try_from(at).unwrap();
        }
    }
    next
}
