//! What is written in a row, or as a whole message, is what is written by plan: bytes, completions and
//! counters.

use rnic_proto::Msn;
use rnic_proto::rdmap::{ReadRequest, segment};

use super::hostile::fpdu;
use super::*;
use crate::qp::send::Turn;

/// Steps of one run.
const STEPS: usize = 120;
/// FPDUs of one step at most.
const FPDUS: usize = 8;

/// A queue pair whose work is written by plan, and one whose work is not where it need not be.
struct Twins {
    planned: End,
    straight: End,
    random: Random,
    /// Bytes of an element at most.
    longest: u64,
    reads: u32,
}

/// How FPDUs were written.
#[derive(Default)]
struct Ways {
    in_row: usize,
    responses_in_row: usize,
    whole: usize,
}

impl Twins {
    fn new(seed: u64, markers: bool, crc: bool) -> Self {
        let terms = Negotiated {
            markers_out: Markers::when(markers),
            crc,
            ..negotiated(None)
        };
        let attributes = QpAttributes {
            max_inline: 64,
            signal_all: seed.is_multiple_of(2),
            ..attributes(false)
        };
        let make = || {
            let mut end = End::with(attributes.clone(), CQ_DEPTH);
            end.qp.begin_connecting().unwrap();
            end.qp.enter_rdma_mode(&terms, true);
            let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect();
            end.fill(BASE, &bytes);
            end
        };
        Self {
            planned: make(),
            straight: make(),
            random: Random::new(seed),
            longest: if seed.is_multiple_of(2) { 700 } else { 40_000 },
            reads: 0,
        }
    }

    fn both(&mut self, act: impl Fn(&mut End)) {
        act(&mut self.planned);
        act(&mut self.straight);
    }

    /// An element: mostly of the region that all may be done to.
    fn element(&mut self) -> Sge {
        let random = &mut self.random;
        let length = match random.below(4) {
            0 => random.below(40),
            1 => random.below(1500),
            2 => random.below(6000),
            _ => random.below(40_000),
        };
        let length = length.min(self.longest);
        let (lkey, addr) = match random.below(600) {
            0 => (OTHER_STAG.0, BASE),
            1 => (STAG.0 + 1, BASE),
            2 => (STAG.0, BASE + LEN as u64 - random.below(2000)),
            3 => (STAG.0, u64::MAX - random.below(100)),
            4 => (LOCAL_STAG.0, BASE + random.below(2000)),
            _ => (STAG.0, BASE + random.below(LEN as u64 / 2)),
        };
        Sge {
            addr,
            length: length as u32,
            lkey,
        }
    }

    /// Posts work of any kind.
    fn post(&mut self) {
        let elements = match self.random.below(6) {
            0 => self.random.below(4),
            _ => 1,
        };
        let sges: Vec<Sge> = (0..elements).map(|_| self.element()).collect();
        let to = match self.random.below(400) {
            0 => u64::MAX - self.random.below(2000),
            _ => self.random.next() >> 8,
        };
        let wr_id = self.random.next();
        let mut request = match self.random.below(20) {
            0..6 => send(wr_id, &sges),
            6 => remote(WrOpcode::SendInvalidate, wr_id, &sges, Stag(9), 0),
            7 => immediate(WrOpcode::WriteImmediate, wr_id, &sges, to, 5),
            // What ends the stream, or waits for an answer that never comes.
            8 => match self.random.below(20) {
                0 => request(WrOpcode::Recv, wr_id, &sges),
                1 => remote(WrOpcode::LocalInvalidate, wr_id, &[], BARE_STAG, 0),
                2 => read(wr_id, sge(BASE, 64), BASE),
                _ => send(wr_id, &[]),
            },
            _ => write(wr_id, &sges, to),
        };
        request.slot.flags ^= self.random.below(4) as u8;
        self.both(|end| {
            let _ = end.sq.push(&request);
            end.doorbell();
        });
    }

    /// The peer asks for bytes, which it may have or not.
    fn ask(&mut self) {
        self.reads += 1;
        let size = self.random.below(30_000) as u32;
        let source_stag = match self.random.below(20) {
            0 => BARE_STAG,
            _ => STAG,
        };
        let request = ReadRequest {
            sink_stag: Stag(0x99),
            sink_to: TaggedOffset(u64::MAX - self.random.below(20_000)),
            size,
            source_stag,
            source_to: TaggedOffset(BASE + self.random.below(LEN as u64 - 30_000)),
        };
        let mut bytes = [0; segment::READ_REQUEST_LEN];
        segment::put_read_request(&mut bytes, Msn(self.reads), &request);
        let bytes = fpdu(&bytes, &[]);
        self.both(|end| end.receive(&bytes));
    }

    /// Writes FPDUs of the one as it may be, and as many of the other by plan.
    fn write(&mut self, ways: &mut Ways) {
        let emss = 400 + self.random.below(1200) as usize;
        let room = match self.random.below(3) {
            0 => self.random.below(emss as u64) as usize,
            _ => emss,
        };
        let most = 1 + self.random.below(FPDUS as u64) as usize;
        let (written, straight) = self.straight.write_straight(emss, room, most, ways);
        let mulpdu = self.planned.qp.mulpdu(emss);
        let planned: Vec<u8> = (0..written)
            .flat_map(|_| self.planned.produce(mulpdu).expect("as many FPDUs"))
            .collect();
        if written == 0 {
            assert_eq!(self.planned.produce(mulpdu), None);
        }
        assert!(straight == planned, "{straight:x?}\n{planned:x?}");
        self.both(|end| end.with_ctx(|qp, ctx| qp.turn_over(ctx)));
    }

    fn assert_same(&mut self) {
        let [a, b] = [&mut self.planned, &mut self.straight];
        assert_eq!(a.sends(), b.sends());
        assert_eq!(a.recvs(), b.recvs());
        assert_eq!(a.counters, b.counters);
        assert_eq!(a.times, b.times);
        assert_eq!(a.qp.state(), b.qp.state());
        assert_eq!(a.qp.wants_close(), b.qp.wants_close());
        assert_eq!(a.sq.free_slots(), b.sq.free_slots());
    }
}

impl End {
    /// FPDUs as a turn has them written, the first one in so much room; how many, and their bytes.
    fn write_straight(
        &mut self,
        emss: usize,
        room: usize,
        most: usize,
        ways: &mut Ways,
    ) -> (usize, Vec<u8>) {
        let mut out = vec![0xee; room];
        let mulpdu = self.qp.mulpdu(emss);
        let (mut bytes, mut written) = (Vec::new(), 0);
        self.with_ctx(|qp, ctx| {
            let responds = qp.send.in_message == Some(Turn::Responses);
            let Some(mut row) = qp.row(ctx.stags, emss, most) else {
                return;
            };
            while let Some(len) = row.next_len()
                && let Some(fpdu) = row.write(len, &mut out)
            {
                assert_eq!(len, fpdu.len);
                assert_eq!(checksum::sum(&out[..len]).folded(), fpdu.sum);
                bytes.extend_from_slice(&out[..len]);
                written += 1;
            }
            assert!(written <= most);
            let so_far = row.written();
            qp.row_written(ctx, so_far);
            *match responds {
                true => &mut ways.responses_in_row,
                false => &mut ways.in_row,
            } += written;
        });
        if written > 0 {
            return (written, bytes);
        }
        let whole = self.with_ctx(|qp, ctx| {
            let whole = qp.next_whole(mulpdu)?;
            let written = qp.write_whole(ctx, &whole, &mut out);
            assert!(written.is_none_or(|written| written.len == whole.bytes()));
            written
        });
        if let Some(fpdu) = whole {
            ways.whole += 1;
            assert_eq!(checksum::sum(&out[..fpdu.len]).folded(), fpdu.sum);
            return (1, out[..fpdu.len].to_vec());
        }
        match self.produce(mulpdu) {
            Some(fpdu) => (1, fpdu),
            None => (0, bytes),
        }
    }
}

#[test]
fn in_a_row_or_whole_is_as_by_plan() {
    let mut ways = Ways::default();
    for seed in seeds(60) {
        let mut twins = Twins::new(seed, seed % 3 == 0, seed % 5 > 0);
        for _ in 0..STEPS {
            match twins.random.below(100) {
                0..30 => twins.post(),
                30..32 => twins.ask(),
                // Memory is taken away at any time.
                34 => twins.both(|end| {
                    end.stags.remove(LOCAL_STAG);
                }),
                35 if seed % 4 == 0 => twins.both(|end| {
                    end.stags.remove(STAG);
                }),
                36 if seed % 7 == 0 => twins.both(|end| end.qp.disconnect()),
                37 => twins.both(|end| end.now += std::time::Duration::from_micros(300)),
                _ => twins.write(&mut ways),
            }
            twins.assert_same();
        }
    }
    let Ways {
        in_row,
        responses_in_row,
        whole,
    } = ways;
    let all = [in_row, responses_in_row, whole];
    assert!(all.iter().all(|ways| *ways > 50), "{all:?}");
}

/// Pages that are gone while a row is written: it ends there, and what is wrong is found by plan.
#[test]
fn a_row_ends_where_its_memory_does() {
    let (mut a, _) = joined();
    a.post_send(&write(1, &[sge(BASE, 20_000)], BASE));
    a.produce(MULPDU).unwrap();
    let emss = MULPDU + 6;
    let mut ways = Ways::default();
    let (written, _) = a.write_straight(emss, emss, 3, &mut ways);
    assert_eq!((written, ways.in_row), (3, 3));
    a.stags.remove(STAG);
    let (written, _) = a.write_straight(emss, emss, 3, &mut ways);
    assert_eq!((written, ways.in_row), (1, 3), "a Terminate");
    assert_eq!(a.qp.state(), QpState::Terminate);
    let told = statuses(&a.sends());
    assert_eq!(told, [(1, WcStatus::LocalProtection)]);
}
