//! Any work of any client, in any order: no octet that was not granted changes, and none after it was
//! revoked.

use super::*;

const STEPS: usize = 2000;
const REGIONS: u32 = 4;
const STAGS: u32 = 8;

/// SplitMix64: enough for tests, and a seed replays exactly.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn stag(&mut self) -> Stag {
        Stag::from_parts(self.below(u64::from(STAGS)) as u32, self.below(3) as u8)
    }

    fn user(&mut self) -> User {
        [USER, USER, NEIGHBOUR, OTHER_USER][self.below(4) as usize]
    }

    fn access(&mut self) -> Access {
        Access::from_bits(self.below(16) as u32)
    }

    /// What `stag` is to be bound to: itself often, and often within the memory.
    fn binding(&mut self, stag: Stag) -> Binding {
        let len = [0, 1, 8, 16, 32, 64, 65, u64::MAX][self.below(8) as usize];
        let region = if self.below(2) == 0 {
            stag
        } else {
            self.stag()
        };
        Binding {
            region,
            base: TaggedOffset(BASE - 2 + self.below(68)),
            len,
            access: self.access(),
        }
    }
}

/// A region's memory, as its owner sees it.
struct Granted {
    memory: Arc<SharedMemory>,
    pd: PdId,
    /// The only stream of its last registration.
    stream: Option<QpNum>,
    writable: bool,
    /// What was there when it was revoked.
    revoked: Option<[u8; LEN]>,
}

impl Granted {
    fn content(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        self.memory.read(0, &mut octets).unwrap();
        octets
    }
}

fn granted(rng: &mut Rng, table: &mut StagTable, index: u32) -> Granted {
    let (user, access) = (rng.user(), rng.access());
    let memory = Arc::new(SharedMemory::private(LEN).unwrap());
    let region = RegionMemory::Shared {
        memory: memory.clone(),
        offset: 0,
        len: LEN,
    };
    let (stag, base) = (Stag::from_parts(index, 0), TaggedOffset(BASE));
    let limited = rng.below(3) == 0;
    if limited {
        table.add_for_stream(stag, user, access, base, region)
    } else {
        table.add(stag, user.pd, access, base, region)
    }
    .unwrap();
    Granted {
        memory,
        pd: user.pd,
        stream: limited.then_some(user.qp),
        writable: access.local_write || access.remote_write || access.remote_atomic,
        revoked: None,
    }
}

#[test]
fn whatever_work_asks_for_only_what_was_granted_changes() {
    let mut made_valid = 0;
    let mut written = 0;
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut table = StagTable::new(STAGS as usize);
        let mut regions: Vec<_> = (0..REGIONS)
            .map(|index| granted(&mut rng, &mut table, index))
            .collect();
        let kinds = [
            StagKind::WindowType1,
            StagKind::WindowType2B,
            StagKind::FastRegion,
        ];
        for index in REGIONS..STAGS {
            let (pd, kind) = (rng.user().pd, kinds[rng.below(3) as usize]);
            let stag = Stag::from_parts(index, 0);
            table.add_unbound(stag, pd, kind).unwrap();
        }
        for _ in 0..STEPS {
            let (stag, user) = (rng.stag(), rng.user());
            let binding = rng.binding(stag);
            let before: Vec<_> = regions.iter().map(Granted::content).collect();
            match rng.below(40) {
                0..10 => made_valid += usize::from(table.bind(stag, user, &binding).is_ok()),
                10..20 => {
                    let stream = (rng.below(2) == 0).then_some(user.qp);
                    let found = table.fast_register(stag, user, stream, &binding);
                    made_valid += usize::from(found.is_ok());
                    if let (Ok(()), Some(region)) = (found, regions.get_mut(stag.index() as usize))
                    {
                        region.stream = stream;
                    }
                }
                20..24 => _ = table.local_invalidate(stag, user),
                24..26 => _ = table.invalidate(stag, user),
                26 => table.stream_ended(user.qp),
                27 if stag.index() < REGIONS && rng.below(32) == 0 => {
                    table.remove(stag);
                    let region = &mut regions[stag.index() as usize];
                    region.revoked = Some(region.content());
                }
                kind => {
                    let at = BASE - 2 + rng.below(68);
                    let len = 1 + rng.below(8) as u32;
                    let sge = Sge {
                        addr: at,
                        length: len,
                        lkey: stag.0,
                    };
                    let sink = match kind % 2 {
                        0 => table.remote_write(stag, TaggedOffset(at), len, user),
                        _ => table.local_write(&sge, user),
                    };
                    if let Ok(sink) = sink {
                        let octets = vec![rng.below(255) as u8 + 1; len as usize];
                        sink.write(0, &octets).unwrap();
                        written += 1;
                    }
                }
            }
            for (region, before) in regions.iter().zip(before) {
                let now = region.content();
                if now != before {
                    assert_eq!(region.pd, user.pd, "seed {seed}: another domain's");
                    assert!(region.writable, "seed {seed}: no right to write");
                    let own = region.stream.is_none_or(|stream| stream == user.qp);
                    assert!(own, "seed {seed}: another stream's");
                }
                assert!(region.revoked.is_none_or(|then| then == now), "seed {seed}");
            }
        }
    }
    assert!(made_valid > 500 && written > 200, "{made_valid} {written}");
}
