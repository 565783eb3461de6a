//! A client that takes memory, to be run in a cgroup of its own:
//!
//!     memory-client sparse SOCKET    registers memory, first without pages, then page by page
//!     memory-client rings SOCKET     has rings made and touches all of their pages
//!
//! It reports the answers, a line for each sort of answer, and goes on until it is refused or killed.

#![forbid(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rnic_ipc::control::{
    Access, MemoryKind, PROTOCOL_VERSION, Refusal, RegionSpec, Reply, Request, Response,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rustix::fs::{MemfdFlags, SealFlags};

/// Bytes of each memfd.
const PIECE: usize = 8 << 20;
/// Memfds: 512 MiB in all.
const PIECES: usize = 64;
/// Entries of each completion queue: 4 MiB.
const DEPTH: u32 = 65_536;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(socket)) = (arguments.next(), arguments.next()) else {
        panic!("use: memory-client sparse|rings SOCKET");
    };
    let client = Client::connect(Path::new(&socket));
    match what.as_str() {
        "sparse" => client.register(),
        "rings" => client.make_rings(),
        other => panic!("sparse or rings, and not {other}"),
    }
}

struct Client(Channel);

impl Client {
    fn connect(socket: &Path) -> Self {
        let client = Self(Channel::connect(socket).expect("it serves"));
        let version = PROTOCOL_VERSION;
        client
            .ask(&Request::Hello { version }, &[])
            .0
            .expect("a welcome");
        client
    }

    fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
        self.0.send(request, fds).expect("it listens");
        self.0.recv_reply().expect("sound").expect("an answer")
    }

    fn register(&self) {
        let (Ok(Response::Pd(pd)), _) = self.ask(&Request::AllocPd, &[]) else {
            panic!("no domain");
        };
        let register = Request::RegisterMemory(RegionSpec {
            pd,
            stream: None,
            access: Access::ALL,
            base: 0,
            offset: 0,
            length: PIECE as u64,
            memory: MemoryKind::Memfd,
        });
        let pieces: Vec<_> = (0..PIECES).map(|_| sparse()).collect();
        let registered = |memfd: &OwnedFd| self.ask(&register, &[memfd.as_fd()]).0;
        let refused = pieces.iter().filter_map(|memfd| registered(memfd).err());
        println!("{} refused without pages", refused.count());
        for (number, memfd) in pieces.iter().enumerate() {
            let mapped = SharedMemory::map(memfd, 0, PIECE as u64).expect("mapped");
            for page in (0..PIECE).step_by(4096) {
                mapped.write(page, b"x").expect("a page");
            }
            registered(memfd).expect("all of it is there");
            println!("{} bytes registered", (number + 1) * PIECE);
        }
    }

    fn make_rings(&self) {
        let mut rings = Vec::new();
        let refusal: Refusal = loop {
            match self.ask(&Request::CreateCq { depth: DEPTH }, &[]) {
                (Ok(_), fds) => {
                    let size = rustix::fs::fstat(&fds[0]).expect("a ring").st_size as u64;
                    let ring = SharedMemory::map(&fds[0], 0, size).expect("mapped");
                    ring.populate().expect("pages");
                    rings.push((ring, fds));
                }
                (Err(refusal), _) => break refusal,
            }
        };
        let bytes: usize = rings.iter().map(|(ring, _)| ring.len()).sum();
        println!("{bytes} bytes of rings, then: {refusal}");
    }
}

/// A memfd without pages that can't shrink.
fn sparse() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("memory-client", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, PIECE as u64).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
    fd
}
