//! Any work of any client, in any order: no byte that was not granted changes, and none after it was
//! revoked.

use super::*;
use crate::random::{Random, seeds};

const STEPS: usize = 2000;
const REGIONS: u32 = 4;
const STAGS: u32 = 8;

fn any_stag(random: &mut Random) -> Stag {
    Stag::from_parts(random.below(u64::from(STAGS)) as u32, random.below(3) as u8)
}

fn any_user(random: &mut Random) -> User {
    [USER, USER, NEIGHBOUR, OTHER_USER][random.below(4) as usize]
}

fn any_access(random: &mut Random) -> Access {
    Access::from_bits(random.below(16) as u32)
}

/// What `stag` is to be bound to: itself often, and often within the memory.
fn any_binding(random: &mut Random, stag: Stag) -> Binding {
    let len = [0, 1, 8, 16, 32, 64, 65, u64::MAX][random.below(8) as usize];
    let region = if random.chance(500) {
        stag
    } else {
        any_stag(random)
    };
    Binding {
        region,
        base: TaggedOffset(BASE - 2 + random.below(68)),
        len,
        access: any_access(random),
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
        let mut bytes = [0; LEN];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }
}

fn granted(random: &mut Random, table: &mut StagTable, index: u32) -> Granted {
    let (user, access) = (any_user(random), any_access(random));
    let memory = Arc::new(SharedMemory::private(LEN).unwrap());
    let region = RegionMemory::Shared {
        memory: memory.clone(),
        offset: 0,
        len: LEN,
    };
    let (stag, base) = (Stag::from_parts(index, 0), TaggedOffset(BASE));
    let limited = random.below(3) == 0;
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
        writable: access
            .intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        revoked: None,
    }
}

#[test]
fn whatever_work_asks_for_only_what_was_granted_changes() {
    let mut made_valid = 0;
    let mut written = 0;
    for seed in seeds(60) {
        let random = &mut Random::new(seed);
        let mut table = StagTable::new(STAGS as usize);
        let mut regions: Vec<_> = (0..REGIONS)
            .map(|index| granted(random, &mut table, index))
            .collect();
        let kinds = [
            StagKind::WindowType1,
            StagKind::WindowType2B,
            StagKind::FastRegion,
        ];
        for index in REGIONS..STAGS {
            let (pd, kind) = (any_user(random).pd, kinds[random.below(3) as usize]);
            let stag = Stag::from_parts(index, 0);
            table.add_unbound(stag, pd, kind).unwrap();
        }
        for _ in 0..STEPS {
            let (stag, user) = (any_stag(random), any_user(random));
            let binding = any_binding(random, stag);
            let before: Vec<_> = regions.iter().map(Granted::content).collect();
            match random.below(40) {
                0..10 => made_valid += usize::from(table.bind(stag, user, &binding).is_ok()),
                10..20 => {
                    let stream = (random.chance(500)).then_some(user.qp);
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
                27 if stag.index() < REGIONS && random.below(32) == 0 => {
                    table.remove(stag);
                    let region = &mut regions[stag.index() as usize];
                    region.revoked = Some(region.content());
                }
                kind => {
                    let at = BASE - 2 + random.below(68);
                    let len = 1 + random.below(8) as u32;
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
                        let bytes = vec![random.below(255) as u8 + 1; len as usize];
                        sink.write(0, &bytes).unwrap();
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
    // Most is refused: were nothing granted, nothing would be shown.
    assert!(made_valid > 0 && written > 0, "{made_valid} {written}");
}
