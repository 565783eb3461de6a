//! Nonsense in shared memory, and whatever else can be done to descriptors that two processes share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_ipc::id::QpNum;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::{MAX_SGE, Sge, WrOpcode};
use rustix::fs::{FallocateFlags, OFlags, SealFlags};
use rustix::net::{SendFlags, Shutdown};

use crate::chance::Chance;
use crate::life::REGION;
use crate::objects::Objects;
use crate::remote;

/// Bytes of a ring before its entries: header, both indices, flag, a line each.
const HEAD: u64 = 256;
/// Bytes of a line.
const LINE: u64 = 64;

/// Writes to a few places of a shared memory, mostly to the words that steer a ring.
pub fn memory(chance: &mut Chance, memory: &SharedMemory) {
    for _ in 0..=chance.below(6) {
        let len = memory.len() as u64;
        let offset = match chance.below(3) {
            0 => LINE * chance.below(HEAD / LINE),
            // A queue pair's second ring begins somewhere.
            1 => LINE * chance.below(len.div_ceil(LINE)),
            _ => chance.below(len) & !3,
        };
        match chance.below(3) {
            0 => {
                let bytes = chance.bytes(200);
                // Beyond the end it is refused, by ourselves.
                let _ = memory.write(offset as usize, &bytes);
            }
            _ => {
                if let Ok(word) = memory.atomic_u32(offset as usize) {
                    let value = match chance.below(3) {
                        0 => word
                            .load(Ordering::Relaxed)
                            .wrapping_add(chance.below(4) as u32),
                        _ => chance.odd32(),
                    };
                    word.store(value, Ordering::Release);
                }
            }
        }
    }
}

/// Only entries, so that the session may live on: never the four lines before them.
pub fn entries(chance: &mut Chance, memory: &SharedMemory) {
    let len = memory.len() as u64;
    for _ in 0..=chance.below(16) {
        let bytes = chance.odd().to_ne_bytes();
        let offset = HEAD + chance.below(len.saturating_sub(HEAD).max(1));
        let _ = memory.write((offset & !7) as usize, &bytes);
    }
}

/// Posts work that may be anything, on the right queue or the wrong one, and tells the engine.
pub fn post(chance: &mut Chance, own: &mut Objects) {
    let Objects {
        queues,
        stags,
        bells,
        ..
    } = own;
    let index = chance.below(queues.len().max(1) as u64) as usize;
    let Some((qp, sq, rq)) = queues.get_mut(index) else {
        return;
    };
    for _ in 0..=chance.below(8) {
        let work = work(chance, stags);
        let queue = if chance.one_in(3) { &mut *rq } else { &mut *sq };
        if queue.push(&work).is_err() {
            break;
        }
    }
    let any = chance.below(bells.len().max(1) as u64) as u32;
    let shard = sq.set_pending().or_else(|| chance.one_in(4).then_some(any));
    if let Some((doorbells, kick)) = shard.and_then(|shard| bells.get_mut(shard as usize))
        && doorbells.ring(*qp) == Ok(true)
    {
        kick.kick();
    }
}

fn work(chance: &mut Chance, stags: &[u32]) -> WorkRequest {
    let mut work = WorkRequest::new(WrOpcode::Send, chance.odd());
    let count = match chance.below(4) {
        0 => chance.below(MAX_SGE as u64 + 1),
        _ => chance.below(3),
    };
    let sges: Vec<Sge> = (0..count)
        .map(|_| Sge {
            addr: address(chance),
            length: match chance.one_in(3) {
                true => chance.odd32(),
                false => chance.below(20_000) as u32,
            },
            lkey: chance.name(stags),
        })
        .collect();
    // As many as there is room for.
    let _ = work.set_sges(&sges);
    work.slot.opcode = match chance.one_in(5) {
        true => chance.odd() as u8,
        false => chance.below(12) as u8,
    };
    work.slot.flags = chance.odd() as u8;
    work.slot.inline_len = chance.odd32();
    work.slot.rkey = chance.name(stags);
    work.slot.remote_addr = address(chance);
    // For work that binds: bytes, then rights and the STag that they are of.
    let rights = u64::from(chance.odd32()) << 32;
    let operands = [
        chance.below(2 * REGION as u64),
        rights | u64::from(chance.name(stags)),
        chance.odd(),
        chance.odd(),
    ];
    let _ = work.set_operands(&operands);
    work
}

/// Mostly one inside the attackers' regions.
fn address(chance: &mut Chance) -> u64 {
    match chance.below(8) {
        0 | 1 => chance.odd(),
        2 => remote::start() + chance.below(REGION as u64),
        _ => chance.below(REGION as u64),
    }
}

/// Rings for queue pairs of anybody's, many times.
pub fn ring(chance: &mut Chance, own: &mut Objects) {
    let index = chance.below(own.bells.len().max(1) as u64) as usize;
    let Some((doorbells, kick)) = own.bells.get_mut(index) else {
        return;
    };
    for _ in 0..=chance.below(2000) {
        if doorbells.ring(QpNum(chance.name(&own.qps))).is_err() {
            break;
        }
    }
    for _ in 0..=chance.below(100) {
        kick.kick();
    }
}

/// Makes shared memory longer, shorter and full of holes.
pub fn resize(chance: &mut Chance, shared: &[(OwnedFd, Arc<SharedMemory>)]) {
    let Some((fd, memory)) = chance.pick(shared) else {
        return;
    };
    // Whatever of this the seals forbid fails, which is what they are for.
    let _ = match chance.below(7) {
        0 => rustix::fs::ftruncate(fd, chance.odd() % (1 << 24)),
        1 => rustix::fs::ftruncate(fd, 0),
        2 => rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE | SealFlags::FUTURE_WRITE),
        5 => rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE),
        6 => rustix::fs::fcntl_add_seals(fd, SealFlags::SEAL),
        3 => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let start = chance.below(memory.len() as u64) & !4095;
            rustix::fs::fallocate(fd, hole, start, memory.len() as u64)
        }
        _ => rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, chance.odd() % (1 << 24)),
    };
}

/// Fills, changes, shuts and closes sockets and the eventfd.
pub fn descriptors(chance: &mut Chance, own: &mut Objects) {
    // What is refused or fails here fails for us only.
    match chance.below(7) {
        0 => {
            let all = own.descriptors();
            if let Some(fd) = chance.pick(&all) {
                let flags = match chance.one_in(2) {
                    true => OFlags::NONBLOCK,
                    false => OFlags::empty(),
                };
                let _ = rustix::fs::fcntl_setfl(fd, flags);
            }
        }
        1 => {
            let bytes = chance.bytes(5000);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let kicks = own.bells.iter().map(|(_, kick)| kick.as_fd());
            for fd in own.notices.iter().map(AsFd::as_fd).chain(kicks) {
                let _ = rustix::net::send(fd, &bytes, flags);
            }
            let _ = rustix::net::send(&own.events, &bytes, flags);
        }
        2 => drop(own.notices.pop()),
        3 => {
            if let Some(notices) = own.notices.last() {
                let _ = rustix::net::shutdown(notices, Shutdown::Both);
            }
        }
        4 if chance.one_in(10) => {
            let _ = rustix::net::shutdown(&own.events, Shutdown::Both);
        }
        5 => {
            // As full as it gets, which blocks the next writer; ours don't wait.
            let most = (u64::MAX - 1).to_ne_bytes();
            for (_, kick) in &own.bells {
                let _ = rustix::fs::fcntl_setfl(kick, OFlags::NONBLOCK);
                let _ = rustix::io::write(kick, &most);
            }
        }
        _ => {
            let mut count = [0; 8];
            for (_, kick) in &own.bells {
                let _ = rustix::fs::fcntl_setfl(kick, OFlags::NONBLOCK);
                let _ = rustix::io::read(kick, &mut count);
            }
        }
    }
}

/// Writes as fast as it can, for races with whoever reads, until it is told to stop.
pub fn race(mut chance: Chance, shared: &[Arc<SharedMemory>], stop: &AtomicBool) {
    let gently = chance.one_in(2);
    while !stop.load(Ordering::Relaxed) {
        let Some(found) = chance.pick(shared).cloned() else {
            return;
        };
        for _ in 0..64 {
            match gently {
                true => entries(&mut chance, &found),
                false => memory(&mut chance, &found),
            }
        }
        std::thread::yield_now();
    }
}
