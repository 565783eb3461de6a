//! Control requests: such as a program would make, with what it has or with what it has not.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rnic_ipc::capture::Filter;
use rnic_ipc::control::{
    Access, ConnectSpec, DeviceName, ListenSpec, MarkerUse, MemoryKind, MpaOptions, QpAttributes,
    QpState, RegionSpec, Request, RtrModes, StagKind,
};
use rnic_ipc::id::{ConnRequestId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rustix::net::{RecvFlags, SendFlags};

use crate::chance::Chance;
use crate::objects::Objects;
use crate::remote;

const KINDS: u64 = 32;

/// What an STag without memory is for.
pub fn stag_kind(chance: &mut Chance) -> StagKind {
    match chance.below(3) {
        0 => StagKind::WindowType1,
        1 => StagKind::WindowType2B,
        _ => StagKind::FastRegion,
    }
}

/// A request of any kind. Most of its names are the session's own, so that it comes far.
pub fn any(chance: &mut Chance, own: &Objects, address: SocketAddr) -> Request {
    let pd = PdId(chance.name(&own.pds));
    let cq = CqId(chance.name(&own.cqs));
    let srq = SrqId(chance.name(&own.srqs));
    let qp = QpNum(chance.name(&own.qps));
    let stag = chance.name(&own.stags);
    let listener = ListenerId(chance.name(&own.listeners));
    let request = ConnRequestId(chance.name(&own.requests));
    match chance.below(KINDS) {
        0 => Request::Hello {
            version: chance.odd32(),
        },
        1 => Request::QueryDevice,
        2 => Request::AllocPd,
        3 => Request::DeallocPd { pd },
        4 | 5 => Request::RegisterMemory(RegionSpec {
            pd,
            stream: chance.one_in(4).then_some(qp),
            access: Access::from_bits(chance.odd32()),
            base: chance.odd(),
            offset: chance.odd() & !chance.odd(),
            length: chance.odd(),
            memory: match chance.one_in(8) {
                true => MemoryKind::ALL[chance.below(MemoryKind::ALL.len() as u64) as usize],
                false => MemoryKind::Memfd,
            },
        }),
        6 => Request::AllocStag {
            pd,
            kind: stag_kind(chance),
        },
        7 => Request::DeregisterMemory { stag },
        8 => Request::CreateCq {
            depth: chance.odd32(),
        },
        9 if chance.one_in(2) => Request::DestroyCq { cq },
        9 => Request::ResizeCq {
            cq,
            depth: chance.odd32(),
        },
        10 => Request::CreateSrq {
            pd,
            depth: chance.odd32(),
            max_sge: chance.odd32(),
        },
        11 => Request::ArmSrq {
            srq,
            limit: chance.odd32(),
        },
        12 => Request::DestroySrq { srq },
        13 => Request::CreateQp(QpAttributes {
            pd,
            send_cq: cq,
            recv_cq: CqId(chance.name(&own.cqs)),
            sq_depth: chance.odd32(),
            rq_depth: chance.odd32(),
            srq: chance.one_in(3).then_some(srq),
            max_sge: chance.odd32() % 40,
            max_inline: chance.odd32() % 600,
            signal_all: chance.one_in(2),
            receive_wait: None,
        }),
        14 => Request::DestroyQp { qp },
        15 => Request::QueryQp { qp },
        16 | 17 => Request::ModifyQp {
            qp,
            state: state(chance),
        },
        18 => Request::Listen(ListenSpec {
            local: local(chance, address),
            backlog: chance.odd32(),
            transport: rnic_ipc::control::Transport::Tcp,
        }),
        19 => Request::Unlisten { listener },
        20 => Request::Connect {
            qp,
            spec: ConnectSpec {
                remote: local(chance, address),
                local: None,
                local_port: chance.odd32() as u16,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa: mpa(chance),
                private_data: chance.bytes(600),
            },
        },
        21 => Request::Accept {
            request,
            qp,
            mpa: mpa(chance),
            private_data: chance.bytes(600),
        },
        22 => Request::Reject {
            request,
            private_data: chance.bytes(600),
        },
        23 | 24 => Request::Disconnect {
            qp,
            abort: chance.one_in(2),
        },
        25 => Request::StartCapture(Filter {
            snap: chance.one_in(2).then(|| chance.odd32()),
            ..Filter::default()
        }),
        26 => Request::StopCapture,
        27 => Request::ListDevices,
        28 => Request::OpenDevice(DeviceName::Toward(local(chance, address).ip())),
        29 | 30 => remote::request(chance, pd, qp),
        _ => Request::QueryCounters {
            first: chance.odd32(),
        },
    }
}

/// A request of any kind, with descriptors that may be none of its business.
pub fn ask_any(chance: &mut Chance, own: &mut Objects, address: SocketAddr) -> bool {
    let request = any(chance, own, address);
    let memory = match request {
        Request::RegisterMemory(RegionSpec { memory, .. })
            if memory != MemoryKind::Remote && !chance.one_in(5) =>
        {
            SharedMemory::create("hostile", 1 << (12 + chance.below(8))).ok()
        }
        _ => None,
    };
    let strange = if memory.is_some() || chance.one_in(8) {
        let mut all = Vec::new();
        for _ in 0..=chance.below(3) {
            let own = own.descriptors();
            let fd = chance
                .pick(&own)
                .and_then(|fd| fd.try_clone_to_owned().ok());
            all.extend(fd);
        }
        all
    } else {
        Vec::new()
    };
    let remote = match request {
        Request::RegisterMemory(RegionSpec {
            memory: MemoryKind::Remote,
            ..
        }) if !chance.one_in(5) => remote::descriptor(chance),
        _ => None,
    };
    let mut fds: Vec<_> = memory.iter().map(|(_, fd)| fd.as_fd()).collect();
    fds.extend(remote.iter().map(AsFd::as_fd));
    if fds.is_empty() || chance.one_in(10) {
        fds.extend(strange.iter().map(AsFd::as_fd));
    }
    fds.truncate(4);
    let goes_on = own.ask(&request, &fds);
    if let Some((mapped, fd)) = memory
        && chance.one_in(2)
    {
        own.shared.push((fd, std::sync::Arc::new(mapped)));
    }
    goes_on
}

/// A message that is none: random bytes, or a request that was damaged on its way.
pub fn garbage(chance: &mut Chance, own: &mut Objects, address: SocketAddr) -> bool {
    let bytes = if chance.one_in(2) {
        chance.bytes(5000)
    } else {
        let request = any(chance, own, address);
        damaged(chance, &request).unwrap_or_default()
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::send(&own.control, &bytes, flags) {
        Ok(_) => own.take_reply(),
        Err(errno) => errno == rustix::io::Errno::AGAIN || errno == rustix::io::Errno::MSGSIZE,
    }
}

/// A request's encoding with some bytes changed, cut short or made longer.
fn damaged(chance: &mut Chance, request: &Request) -> Option<Vec<u8>> {
    let (from, to) = Channel::pair().ok()?;
    from.send(request, &[]).ok()?;
    let mut bytes = vec![0; 8192];
    let (length, _) = rustix::net::recv(&to, &mut bytes[..], RecvFlags::empty()).ok()?;
    bytes.truncate(length);
    for _ in 0..=chance.below(3) {
        match chance.below(3) {
            0 => bytes.truncate(chance.below(bytes.len() as u64 + 1) as usize),
            1 => bytes.extend(chance.bytes(20)),
            _ => {
                let at = chance.below(bytes.len().max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = chance.odd() as u8;
                }
            }
        }
    }
    Some(bytes)
}

fn state(chance: &mut Chance) -> QpState {
    let states = [
        QpState::Idle,
        QpState::Connecting,
        QpState::Rts,
        QpState::Closing,
        QpState::Terminate,
        QpState::Error,
    ];
    states[chance.below(states.len() as u64) as usize]
}

fn mpa(chance: &mut Chance) -> MpaOptions {
    MpaOptions {
        revision: if chance.one_in(4) {
            chance.odd() as u8
        } else {
            2
        },
        crc: chance.one_in(2),
        markers: match chance.below(3) {
            0 => MarkerUse::Off,
            1 => MarkerUse::Prefer,
            _ => MarkerUse::Require,
        },
        aligned: chance.one_in(3),
        rtr: RtrModes {
            write: chance.one_in(2),
            read: chance.one_in(2),
            send: chance.one_in(2),
        },
        ird: chance.odd() as u16,
        ord: chance.odd() as u16,
    }
}

/// The daemon's address with a port of the attackers' or any, or an address of nobody's.
fn local(chance: &mut Chance, address: SocketAddr) -> SocketAddr {
    let port = match chance.below(3) {
        0 => 0,
        1 => address.port() + chance.below(8) as u16,
        _ => chance.odd() as u16,
    };
    match chance.below(8) {
        0 => ([0, 0, 0, 0], port).into(),
        1 => ([198, 18, 255, 254], port).into(),
        _ => (address.ip(), port).into(),
    }
}
