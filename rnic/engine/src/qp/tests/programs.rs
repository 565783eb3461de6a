//! Random programs of verbs against a model: every byte arrives where it should and nowhere else,
//! however the stream is cut, and completions come in the order of posting.

use super::*;

/// Bytes that are only read, then bytes that are only written, each written once.
const SINKS: u64 = BASE + (LEN as u64) / 2;
const LONGEST: u64 = 6000;
/// The first sinks are words for Atomic Operations.
const WORDS: u64 = 4;

struct Model {
    end: End,
    /// What the sinks must hold in the end.
    sinks: Vec<u8>,
    next_sink: u64,
    source: Vec<u8>,
    posted: u64,
    received: u64,
    /// Receives that no Send was posted for yet: their elements.
    receives: std::collections::VecDeque<Vec<Sge>>,
}

impl Model {
    fn new(random: &mut Random) -> Self {
        let end = End::new();
        let source = bytes(random, LEN / 2);
        end.fill(BASE, &source);
        Self {
            end,
            sinks: vec![0; LEN / 2],
            next_sink: SINKS + WORDS * 8,
            source,
            posted: 0,
            received: 0,
            receives: std::collections::VecDeque::new(),
        }
    }

    /// A place for `len` bytes that nothing else is placed at.
    fn sink(&mut self, len: u32) -> Option<u64> {
        let at = self.next_sink;
        let end = at + u64::from(len) + 3;
        if end > BASE + LEN as u64 {
            return None;
        }
        self.next_sink = end;
        Some(at)
    }

    fn expect(&mut self, at: u64, bytes: &[u8]) {
        let from = (at - SINKS) as usize;
        self.sinks[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn gather(&self, sges: &[Sge]) -> Vec<u8> {
        let mut out = Vec::new();
        for sge in sges {
            let from = (sge.addr - BASE) as usize;
            out.extend_from_slice(&self.source[from..from + sge.length as usize]);
        }
        out
    }
}

fn sources(random: &mut Random) -> Vec<Sge> {
    let count = random.below(u64::from(MAX_SGE) + 1);
    let longest = LONGEST / count.max(1);
    (0..count)
        .map(|_| {
            let length = random.below(longest) as u32;
            sge(BASE + random.below(LEN as u64 / 2 - longest), length)
        })
        .collect()
}

fn operation(random: &mut Random) -> AtomicOperation {
    if random.below(2) == 0 {
        return AtomicOperation::FetchAdd {
            add: random.next(),
            mask: random.next() & random.next(),
        };
    }
    AtomicOperation::CompareSwap {
        swap: random.next(),
        swap_mask: random.next(),
        compare: random.next(),
        compare_mask: random.below(3),
    }
}

fn post(from: &mut Model, to: &mut Model, random: &mut Random) -> Option<()> {
    if from.end.sq.free_slots() < 8 {
        return Some(());
    }
    match random.below(7) {
        4 => {
            let at = SINKS + 8 * random.below(WORDS);
            let sink = from.sink(8)?;
            let operation = operation(random);
            let place = (at - SINKS) as usize;
            let original: [u8; 8] = to.sinks[place..place + 8].try_into().unwrap();
            let wanted = operation.apply(u64::from_ne_bytes(original));
            to.expect(at, &wanted.to_ne_bytes());
            from.expect(sink, &original);
            let work = atomic(from.posted, sink, STAG, at, operation);
            from.end.post_send(&work);
        }
        5 => {
            to.receives.pop_front()?;
            let opcode = WrOpcode::Immediate;
            let work = immediate(opcode, from.posted, &[], 0, from.posted);
            from.end.post_send(&work);
        }
        6 => {
            let sges = sources(random);
            let bytes = from.gather(&sges);
            let at = to.sink(bytes.len() as u32)?;
            to.receives.pop_front()?;
            to.expect(at, &bytes);
            let opcode = WrOpcode::WriteImmediate;
            let work = immediate(opcode, from.posted, &sges, at, from.posted);
            from.end.post_send(&work);
        }
        0 => {
            let sges = sources(random);
            let bytes = from.gather(&sges);
            let at = to.sink(bytes.len() as u32)?;
            to.expect(at, &bytes);
            from.end.post_send(&write(from.posted, &sges, at));
        }
        1 => {
            let len = random.below(LONGEST) as u32;
            let source = sge(BASE + random.below(LEN as u64 / 2 - LONGEST), len);
            let bytes = to.gather(&[source]);
            let at = from.sink(len)?;
            from.expect(at, &bytes);
            from.end
                .post_send(&read(from.posted, sge(at, len), source.addr));
        }
        _ => {
            let receive = to.receives.pop_front()?;
            let room: u64 = receive.iter().map(|sge| u64::from(sge.length)).sum();
            let mut sges = sources(random);
            while sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>() > room {
                sges.pop();
            }
            let bytes = from.gather(&sges);
            let mut rest = &bytes[..];
            for piece in &receive {
                let (now, later) = rest.split_at(rest.len().min(piece.length as usize));
                to.expect(piece.addr, now);
                rest = later;
            }
            from.end.post_send(&send(from.posted, &sges));
        }
    }
    from.posted += 1;
    Some(())
}

fn post_receive(model: &mut Model, random: &mut Random) -> Option<()> {
    if model.end.rq.free_slots() < 8 {
        return Some(());
    }
    let count = random.below(u64::from(MAX_SGE) + 1);
    let mut sges = Vec::new();
    for _ in 0..count {
        let length = random.below(LONGEST / count) as u32;
        sges.push(sge(model.sink(length)?, length));
    }
    model.end.post_recv(model.received, &sges);
    model.received += 1;
    model.receives.push_back(sges);
    Some(())
}

fn program(seed: u64) {
    let random = &mut Random::new(seed);
    let (mut a, mut b) = (Model::new(random), Model::new(random));
    // The same in both directions: each end is opened with the same terms.
    let markers = Markers::when(random.below(2) == 1);
    let terms = Negotiated {
        markers_in: markers,
        markers_out: markers,
        ..negotiated(Some(Rtr::Read))
    };
    open(&mut a.end, &mut b.end, &terms);
    let mut completed = [[0u64; 2]; 2];
    let mut quiet = 0;
    // A few idle rounds show that nothing is left: each may take in no byte by chance.
    while quiet < 200 {
        quiet += 1;
        for (side, completed) in completed.iter_mut().enumerate() {
            let (from, to) = if side == 0 {
                (&mut a, &mut b)
            } else {
                (&mut b, &mut a)
            };
            if quiet < 20 && random.below(3) == 0 {
                post_receive(from, random);
            }
            if quiet < 20 && random.below(3) == 0 && post(from, to, random).is_some() {
                quiet = 0;
            }
            for _ in 0..random.below(6) {
                let mulpdu = 128 + random.below(4000) as usize;
                let Some(fpdu) = from.end.produce(mulpdu) else {
                    break;
                };
                to.end.stream.extend_from_slice(&fpdu);
                quiet = 0;
            }
            to.end.receive_cut(random);
            for completion in from.end.sends() {
                assert_eq!(completion.status, WcStatus::Success as u8, "seed {seed}");
                assert_eq!(completion.wr_id, completed[0], "seed {seed}");
                completed[0] += 1;
            }
            for completion in from.end.recvs() {
                assert_eq!(completion.status, WcStatus::Success as u8, "seed {seed}");
                assert_eq!(completion.wr_id, completed[1], "seed {seed}");
                completed[1] += 1;
            }
        }
    }
    for (model, completed) in [(&a, completed[0]), (&b, completed[1])] {
        assert_eq!(
            completed[0], model.posted,
            "seed {seed}: all work completes"
        );
        assert!(model.end.stream.is_empty(), "seed {seed}");
        assert_eq!(
            model.end.read(BASE, LEN / 2),
            model.source,
            "seed {seed}: sources"
        );
        let sinks = model.end.read(SINKS, LEN / 2);
        let wrong = sinks
            .iter()
            .zip(&model.sinks)
            .position(|(found, wanted)| found != wanted);
        assert_eq!(wrong, None, "seed {seed}: sinks");
        model.end.assert_guarded_untouched();
        assert_eq!(model.end.qp.state(), QpState::Rts, "seed {seed}");
    }
}

#[test]
fn random_programs_move_every_byte_to_its_place_in_order() {
    for seed in seeds(50) {
        program(seed);
    }
}
