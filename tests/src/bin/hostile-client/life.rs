//! One life of an attacker: what it does, one act after the other, until its time is over or the
//! daemons will have no more of it.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rnic_ipc::control::{
    Access, ConnectSpec, ListenSpec, MemoryKind, MpaOptions, QpAttributes, QpState, RegionSpec,
    Request,
};
use rnic_ipc::id::{ConnRequestId, CqId, PdId, QpNum};
use rnic_ipc::shm::SharedMemory;

use crate::chance::Chance;
use crate::objects::Objects;
use crate::{heir, remote, requests, scribble};

/// Bytes of a region that is made to be used.
pub const REGION: usize = 1 << 16;
/// How long a connection request is waited for.
const SOON: Duration = Duration::from_millis(300);

pub struct Life<'a> {
    socket: &'a Path,
    other: &'a Path,
    address: SocketAddr,
    chance: Chance,
    /// How rarely an act comes that costs the session; never at 0.
    recklessness: u64,
}

impl<'a> Life<'a> {
    pub fn new(socket: &'a Path, other: &'a Path, address: SocketAddr, mut chance: Chance) -> Self {
        let recklessness = [0, 200, 20, 2][chance.below(4) as usize];
        Self {
            socket,
            other,
            address,
            chance,
            recklessness,
        }
    }

    /// Lives until `end`, with as many sessions as that takes.
    pub fn live(mut self, end: Instant) {
        while Instant::now() < end {
            let Some(own) = Objects::greet(self.socket) else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            self.session(own, end);
        }
    }

    fn session(&mut self, mut own: Objects, end: Instant) {
        let mut heirs = Vec::new();
        furnish(&mut own, &mut self.chance);
        // The other end of our connections; it goes when this session does, or before.
        let mut peer = match self.chance.one_in(3) {
            true => None,
            false => self.couple(&mut own),
        };
        let stop = AtomicBool::new(false);
        let shared: Vec<Arc<SharedMemory>> = own
            .shared
            .iter()
            .map(|(_, memory)| memory.clone())
            .collect();
        let races = self.recklessness > 0 && self.chance.one_in(3);
        std::thread::scope(|scope| {
            if races {
                let chance = Chance::new(self.chance.next());
                scope.spawn(|| scribble::race(chance, &shared, &stop));
            }
            while Instant::now() < end && self.act(&mut own, &mut heirs) {
                if let Some(peer) = &mut peer {
                    scribble::post(&mut self.chance, peer);
                }
                if self.chance.one_in(100) {
                    peer = None;
                }
                if self.chance.one_in(300) {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        if self.chance.one_in(2) {
            // A request under way, whose reply nobody reads.
            let _ = own
                .control
                .try_send(&Request::CreateCq { depth: 4096 }, &[]);
        }
        drop(own);
        for mut heir in heirs {
            let _ = heir.wait();
        }
    }

    /// One act. Says whether the session goes on.
    fn act(&mut self, own: &mut Objects, heirs: &mut Vec<Child>) -> bool {
        let chance = &mut self.chance;
        own.take_events();
        if self.recklessness > 0 && chance.one_in(self.recklessness) {
            return match chance.below(4) {
                0 => requests::garbage(chance, own, self.address),
                1 => {
                    scribble::ring(chance, own);
                    true
                }
                _ => {
                    let found = chance.pick(&own.shared).map(|(_, memory)| memory.clone());
                    if let Some(memory) = found {
                        scribble::memory(chance, &memory);
                    }
                    true
                }
            };
        }
        match chance.below(24) {
            0..8 => scribble::post(chance, own),
            8..13 => return requests::ask_any(chance, own, self.address),
            13 | 14 => scribble::descriptors(chance, own),
            15 | 16 => scribble::resize(chance, &own.shared),
            17 => furnish(own, chance),
            18 if heirs.len() < 2 && chance.one_in(10) => {
                heirs.extend(heir::hand_over(chance, own));
            }
            19 => std::thread::sleep(Duration::from_micros(chance.below(2000))),
            20 => {
                // A closed notice, a region unmapped: whatever there is most of.
                if own.shared.len() > 8 {
                    let last = own.shared.len() - 1;
                    drop(own.shared.remove(chance.below(last as u64) as usize));
                }
            }
            _ => {
                let found = chance.pick(&own.shared).map(|(_, memory)| memory.clone());
                if let Some(memory) = found {
                    scribble::entries(chance, &memory);
                }
            }
        }
        true
    }

    /// Connects a queue pair of this session to one of a session with the other daemon.
    fn couple(&mut self, own: &mut Objects) -> Option<Objects> {
        let mut peer = Objects::greet(self.other)?;
        furnish(&mut peer, &mut self.chance);
        let port = self.address.port() + self.chance.below(8) as u16;
        let local = (self.address.ip(), port).into();
        own.ask(
            &Request::Listen(ListenSpec {
                local,
                backlog: 4,
                transport: rnic_ipc::control::Transport::Tcp,
            }),
            &[],
        );
        let qp = QpNum(*peer.qps.first()?);
        let mpa = MpaOptions::default();
        let private_data = Vec::new();
        let connect = Request::Connect {
            qp,
            spec: ConnectSpec {
                remote: local,
                local: None,
                local_port: 0,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa,
                private_data: private_data.clone(),
            },
        };
        peer.ask(&connect, &[]);
        let begin = Instant::now();
        while own.requests.is_empty() && begin.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
            own.take_events();
        }
        let accept = Request::Accept {
            request: ConnRequestId(*own.requests.first()?),
            qp: QpNum(*own.qps.first()?),
            mpa,
            private_data,
        };
        own.ask(&accept, &[]);
        // Names of the other's: what a peer was told, it may use, and what it was not it may try.
        own.stags.extend(peer.stags.clone());
        peer.stags.extend(own.stags.clone());
        Some(peer)
    }
}

/// Asks for one of everything, as a program would that means to work.
fn furnish(own: &mut Objects, chance: &mut Chance) {
    own.ask(&Request::AllocPd, &[]);
    own.ask(&Request::CreateCq { depth: 64 }, &[]);
    let (Some(pd), Some(cq)) = (own.pds.last(), own.cqs.last()) else {
        return;
    };
    let (pd, cq) = (PdId(*pd), CqId(*cq));
    own.ask(
        &Request::CreateQp(QpAttributes {
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 16,
            rq_depth: 16,
            srq: None,
            max_sge: 4,
            max_inline: 64,
            signal_all: chance.one_in(2),
            receive_wait: None,
        }),
        &[],
    );
    if let Ok((memory, fd)) = SharedMemory::create("hostile", REGION) {
        if !chance.one_in(8) {
            let _ = memory.populate();
        }
        let register = Request::RegisterMemory(RegionSpec {
            pd,
            stream: None,
            access: Access::ALL,
            base: 0,
            offset: 0,
            length: REGION as u64,
            memory: MemoryKind::Memfd,
        });
        own.ask(&register, &[fd.as_fd()]);
        own.shared.push((fd, Arc::new(memory)));
    }
    if chance.one_in(2) {
        let qp = QpNum(chance.name(&own.qps));
        let register = remote::request(chance, pd, qp);
        if let Some(memory) = remote::descriptor(chance) {
            own.ask(&register, &[memory.as_fd()]);
        }
    }
    if chance.one_in(4) {
        let kind = requests::stag_kind(chance);
        own.ask(&Request::AllocStag { pd, kind }, &[]);
    }
    if chance.one_in(8)
        && let Some(qp) = own.qps.last()
    {
        let qp = QpNum(*qp);
        own.ask(
            &Request::ModifyQp {
                qp,
                state: QpState::Error,
            },
            &[],
        );
    }
}
