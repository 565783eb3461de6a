use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;
use std::time::Instant;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use userspace_net::{FourTuple, checksum};
use userspace_tcp::{IcmpError, SeqNum};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// A reader of one end of a socket pair, whose messages stand for the kernel's.
struct Bench {
    kernel: OwnedFd,
    counts: Arc<IcmpCounts>,
    delivered: mpsc::Receiver<Vec<IcmpReport>>,
    reader: IcmpReader,
}

impl Bench {
    fn new(version: IpVersion, mut takes: impl FnMut() -> bool + Send + 'static) -> Self {
        let (kernel, socket) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let counts = Arc::new(IcmpCounts::default());
        let (sender, delivered) = mpsc::channel();
        let sockets = vec![IcmpSocket { version, socket }];
        let deliver = move |reports| takes() && sender.send(reports).is_ok();
        let reader = IcmpReader::start(sockets, counts.clone(), deliver).unwrap();
        Self {
            kernel,
            counts,
            delivered,
            reader,
        }
    }

    fn send(&self, message: &[u8]) -> bool {
        rustix::net::send(&self.kernel, message, SendFlags::empty()).is_ok()
    }

    fn wait_for(&self, count: &AtomicU64, wanted: u64) {
        let end = Instant::now() + PATIENCE;
        while count.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < end, "{:?}", self.counts);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn too_big_v6(seq: u32) -> Vec<u8> {
    let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0x78];
    message.extend([0x60, 0, 0, 0, 0, 20, 6, 64]);
    message.extend([0x20; 16]);
    message.extend([0x21; 16]);
    message.extend([0, 80, 0, 81]);
    message.extend(seq.to_be_bytes());
    message
}

#[test]
fn messages_of_both_versions_become_reports() {
    let bench = Bench::new(IpVersion::V6, || true);
    assert!(bench.send(&too_big_v6(7)));
    let (local, remote): (IpAddr, IpAddr) = ([0x20; 16].into(), [0x21; 16].into());
    let expected = IcmpReport {
        tuple: FourTuple::new((local, 80), (remote, 81)),
        quoted: rnic_net::Quoted::Segment { seq: SeqNum(7) },
        error: IcmpError::PacketTooBig { mtu: 1400 },
    };
    assert_eq!(bench.delivered.recv_timeout(PATIENCE), Ok(vec![expected]));
    bench.reader.stop();

    let bench = Bench::new(IpVersion::V4, || true);
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend([
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
    ]);
    message.extend([0, 80, 0, 81, 0, 0, 0, 9]);
    let sum = checksum::fold(checksum::sum(&message)).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut packet = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend([198, 18, 0, 9, 198, 18, 0, 1]);
    packet.extend(message);
    assert!(bench.send(&packet));
    let reports = bench.delivered.recv_timeout(PATIENCE).unwrap();
    assert_eq!(
        reports[0].tuple.local.addr,
        IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1))
    );
    assert_eq!(reports[0].error, IcmpError::Unreachable { hard: true });
    bench.reader.stop();
}

#[test]
fn what_is_unusable_or_finds_the_shard_busy_is_counted() {
    let bench = Bench::new(IpVersion::V6, || false);
    assert!(bench.send(b"no message"));
    assert!(bench.send(&too_big_v6(1)));
    bench.wait_for(&bench.counts.lost, 1);
    assert_eq!(bench.counts.received.load(Ordering::Relaxed), 2);
    assert_eq!(bench.counts.unusable.load(Ordering::Relaxed), 1);
    bench.reader.stop();
}

#[test]
fn a_flood_is_read_slowly_and_in_small_helpings() {
    let bench = Bench::new(IpVersion::V6, || true);
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < Duration::from_millis(300) {
        sent += u64::from(bench.send(&too_big_v6(1)));
    }
    let received = bench.counts.received.load(Ordering::Relaxed);
    let most = start.elapsed().as_millis() as u64 / PAUSE.as_millis() as u64 + 2;
    assert!(received <= most * BATCH as u64, "{received} of {sent}");
    assert!(
        bench
            .delivered
            .try_iter()
            .all(|reports| reports.len() <= BATCH)
    );
    bench.reader.stop();
}

#[test]
fn a_reader_ends_at_once_when_nothing_comes() {
    let bench = Bench::new(IpVersion::V4, || true);
    let start = Instant::now();
    bench.reader.stop();
    assert!(start.elapsed() < PATIENCE);
}
