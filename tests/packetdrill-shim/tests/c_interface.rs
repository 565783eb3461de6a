//! packetdrill's part, played by Rust through the same C functions: a connection from SYN to
//! TIME-WAIT, a call that blocks, what is refused, and the clock.
#![allow(clippy::unwrap_used)]

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use libc::{c_int, sockaddr_in, socklen_t};
use rnic_net::{ETHERNET_HEADER, Path, PathDefaults, Payload};
use rnic_packetdrill_shim::{Interface, packetdrill_interface_init};
use userspace_net::{Ecn, Endpoint, FourTuple, checksum};
use userspace_tcp::{Flags, Options, Segment, SeqNum, TcpHeader};

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 8080;
const PATH: Path = Path {
    src_mac: [2, 0, 0, 0, 0, 2],
    dst_mac: [2, 0, 0, 0, 0, 1],
    vlan: None,
    mtu: 1500,
    hop_limit: 64,
};

/// The table, and the connection as the peer knows it.
struct Bench {
    table: Interface,
    ours: AtomicU32,
    theirs: AtomicU32,
}

// SAFETY: the interface's functions may be called from any thread; `userdata` is only handed to
// them.
unsafe impl Sync for Bench {}

struct Packet {
    header: TcpHeader,
    payload: Vec<u8>,
    at_micros: i64,
}

impl Bench {
    fn new(flags: &str) -> Self {
        let flags = CString::new(flags).unwrap();
        let mut table = MaybeUninit::uninit();
        // SAFETY: a C string, and room for the table, which is filled in.
        let table = unsafe {
            packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr());
            table.assume_init()
        };
        Self {
            table,
            ours: AtomicU32::new(0),
            theirs: AtomicU32::new(7000),
        }
    }

    fn data(&self) -> *mut c_void {
        self.table.userdata
    }

    /// The peer's next sequence number.
    fn theirs(&self) -> u32 {
        self.theirs.load(Relaxed)
    }

    /// A socket that listens on `PORT`.
    fn listener(&self) -> c_int {
        let address = sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: PORT.to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from(LOCAL).to_be(),
            },
            sin_zero: [0; 8],
        };
        let len = size_of::<sockaddr_in>() as socklen_t;
        // SAFETY: the contract of the interface, with an address of this length.
        unsafe {
            let fd = (self.table.socket)(self.data(), libc::AF_INET, libc::SOCK_STREAM, 0);
            assert!(fd >= 0);
            let bound = (self.table.bind)(self.data(), fd, (&raw const address).cast(), len);
            assert_eq!(bound, 0);
            assert_eq!((self.table.listen)(self.data(), fd, 1), 0);
            fd
        }
    }

    fn accept(&self, fd: c_int) -> (c_int, u16) {
        let mut peer = MaybeUninit::<sockaddr_in>::zeroed();
        let mut len = size_of::<sockaddr_in>() as socklen_t;
        // SAFETY: room for an address of this length; zero is one.
        let (accepted, peer) = unsafe {
            let accepted = (self.table.accept)(self.data(), fd, peer.as_mut_ptr().cast(), &mut len);
            (accepted, peer.assume_init())
        };
        (accepted, u16::from_be(peer.sin_port))
    }

    fn tuple(&self) -> FourTuple {
        FourTuple::new(
            Endpoint::new(PEER.into(), 5555),
            Endpoint::new(LOCAL.into(), PORT),
        )
    }

    /// The peer sends a segment.
    fn inject(&self, flags: Flags, options: Options, bytes: &[u8]) {
        let header = TcpHeader {
            source_port: 5555,
            destination_port: PORT,
            seq: SeqNum(self.theirs()),
            ack: SeqNum(self.ours.load(Relaxed)),
            flags,
            window: 20_000,
            options,
            ..TcpHeader::default()
        };
        let headers = PATH.headers_len(LOCAL.into()) + header.header_len();
        let mut frame = vec![0; headers];
        frame.extend_from_slice(bytes);
        let payload = Payload {
            len: bytes.len(),
            sum: checksum::sum(bytes),
        };
        rnic_net::write_segment(
            &PATH,
            &self.tuple(),
            Ecn::NotEct,
            &header,
            payload,
            &mut frame,
        )
        .unwrap();
        let datagram = &frame[ETHERNET_HEADER..];
        // SAFETY: as many bytes as are said.
        let sent = unsafe {
            (self.table.netdev_send)(self.data(), datagram.as_ptr().cast(), datagram.len())
        };
        assert_eq!(sent, 0);
        let phantom = u32::from(flags.syn()) + u32::from(flags.fin());
        self.theirs.fetch_add(bytes.len() as u32 + phantom, Relaxed);
    }

    /// What the stack sends next; `None` when nothing comes any more.
    fn sniff(&self) -> Option<Packet> {
        let mut room = vec![0_u8; 2000];
        let (mut len, mut at_micros) = (room.len(), 0);
        // SAFETY: as much room as is said.
        let status = unsafe {
            let room = room.as_mut_ptr().cast();
            (self.table.netdev_receive)(self.data(), room, &mut len, &mut at_micros)
        };
        assert_eq!(status, 0);
        if len == 0 {
            return None;
        }
        let mut frame = [&PATH.src_mac[..], &PATH.dst_mac, &[0x08, 0x00]].concat();
        frame.extend_from_slice(&room[..len]);
        let parsed = rnic_net::parse(&frame, &PathDefaults::new(1500)).expect("a sound packet");
        let segment = Segment::parse(&frame[parsed.data]).unwrap();
        let flags = segment.header.flags;
        let phantom = u32::from(flags.syn()) + u32::from(flags.fin());
        let next = segment.header.seq.0 + segment.payload.len() as u32 + phantom;
        self.ours.store(next, Relaxed);
        Some(Packet {
            header: segment.header,
            payload: segment.payload.to_vec(),
            at_micros,
        })
    }

    /// Three-way handshake with a listener.
    fn handshake(&self) {
        let options = Options {
            mss: Some(1000),
            ..Options::default()
        };
        self.inject(Flags::SYN, options, &[]);
        let syn_ack = self.sniff().unwrap().header;
        assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
        assert_eq!(syn_ack.ack.0, self.theirs());
        self.inject(Flags::ACK, Options::default(), &[]);
    }

    fn write(&self, fd: c_int, bytes: &[u8]) -> isize {
        // SAFETY: as many bytes as are said.
        unsafe { (self.table.write)(self.data(), fd, bytes.as_ptr().cast(), bytes.len()) }
    }

    fn read(&self, fd: c_int, most: usize) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![0; most];
        // SAFETY: as much room as is said.
        let read = unsafe { (self.table.read)(self.data(), fd, bytes.as_mut_ptr().cast(), most) };
        bytes.truncate(usize::try_from(read).map_err(|_| errno())?);
        Ok(bytes)
    }

    fn close(&self, fd: c_int) -> c_int {
        // SAFETY: no pointer but our own.
        unsafe { (self.table.close)(self.data(), fd) }
    }

    fn micros(&self) -> i64 {
        let mut time = MaybeUninit::<libc::timeval>::uninit();
        // SAFETY: room for the time, which is filled in.
        let time = unsafe {
            let got = (self.table.gettimeofday)(self.data(), time.as_mut_ptr(), ptr::null_mut());
            assert_eq!(got, 0);
            time.assume_init()
        };
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    fn sleep(&self, micros: u32) {
        // SAFETY: no pointer but our own.
        assert_eq!(unsafe { (self.table.usleep)(self.data(), micros) }, 0);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: the last call.
        unsafe { (self.table.free)(self.data()) };
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn bytes_go_both_ways_and_both_ends_close() {
    let bench = Bench::new("timestamps=off");
    let listener = bench.listener();
    bench.handshake();
    let (fd, port) = bench.accept(listener);
    assert!(fd >= 0);
    assert_eq!(port, 5555);

    assert_eq!(bench.write(fd, &[b'x'; 2500]), 2500);
    let sent: Vec<_> = (0..3)
        .map(|_| bench.sniff().unwrap().payload.len())
        .collect();
    assert_eq!(sent, [1000, 1000, 500], "segments of the peer's MSS");
    bench.inject(Flags::ACK, Options::default(), b"hello");
    assert_eq!(bench.read(fd, 100).as_deref(), Ok(&b"hello"[..]));
    assert_eq!(bench.sniff().unwrap().header.ack.0, bench.theirs());

    assert_eq!(bench.close(fd), 0);
    let fin = bench.sniff().unwrap().header.flags;
    assert_eq!(fin, Flags::FIN | Flags::ACK);
    bench.inject(Flags::FIN | Flags::ACK, Options::default(), &[]);
    assert_eq!(bench.sniff().unwrap().header.ack.0, bench.theirs());
    assert!(bench.sniff().is_none(), "all is said");
}

#[test]
fn a_blocking_call_returns_at_the_time_of_what_it_waits_for() {
    let bench = Bench::new("");
    let listener = bench.listener();
    bench.handshake();
    let (fd, _) = bench.accept(listener);
    let begun = bench.micros();
    thread::scope(|scope| {
        let reader = scope.spawn(|| (bench.read(fd, 10), bench.micros()));
        // packetdrill goes on when the thread sleeps.
        thread::sleep(Duration::from_secs(2));
        bench.sleep(70_000);
        bench.inject(Flags::ACK, Options::default(), b"late");
        bench.sleep(1_000_000);
        let (read, at) = reader.join().unwrap();
        assert_eq!(read.as_deref(), Ok(&b"late"[..]));
        assert!((70_000..71_000).contains(&(at - begun)), "{}", at - begun);
    });
}

#[test]
fn time_passes_only_for_who_waits() {
    let bench = Bench::new("syn_retries=2");
    let begun = bench.micros();
    thread::sleep(Duration::from_millis(20));
    assert!(bench.micros() - begun < 1000);
    bench.listener();
    let options = Options {
        mss: Some(1000),
        ..Options::default()
    };
    bench.inject(Flags::SYN, options, &[]);
    let first = bench.sniff().unwrap().at_micros;
    let again = bench.sniff().unwrap().at_micros;
    assert!(
        (1_000_000..1_010_000).contains(&(again - first)),
        "{}",
        again - first
    );
}

#[test]
fn what_cannot_be_done_is_an_errno() {
    let bench = Bench::new("");
    assert_eq!(bench.read(12, 1), Err(libc::EBADF));
    let fd = bench.listener();
    assert_eq!(bench.read(fd, 1), Err(libc::ENOTCONN));
    assert_eq!(bench.accept(fd).0, -1);
    assert_eq!(errno(), libc::EDEADLK, "nobody is there to connect");
    let one = 1_i32.to_ne_bytes();
    // SAFETY: an option of this length, and no pointers.
    unsafe {
        let table = &bench.table;
        let refused = (table.setsockopt)(
            bench.data(),
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN,
            one.as_ptr().cast(),
            4,
        );
        assert_eq!((refused, errno()), (-1, libc::ENOPROTOOPT));
        assert_eq!((table.epoll_create)(bench.data(), 1), -1);
        assert_eq!(errno(), libc::ENOSYS);
        assert_eq!((table.write)(bench.data(), fd, ptr::null(), 7), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!((table.socket)(bench.data(), libc::AF_UNIX, 1, 0), -1);
        assert_eq!(errno(), libc::EAFNOSUPPORT);
    }
}
