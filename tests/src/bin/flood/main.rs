//! A flood of strangers' segments, by a raw IPv4 socket: what somebody on the network can send who has
//! no connection. For the lab; it needs CAP_NET_RAW, and ends by itself.
//!
//! `flood --to 198.18.0.2:18515 --kind syn --rate 500000 --seconds 5 --sources random`
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use userspace_tcp::checksum;

/// Octets of an IPv4 header, and of a TCP header, without options.
const HEADER: usize = 20;
/// Packets between two looks at the clock.
const BATCH: u64 = 32;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

#[derive(Parser)]
#[command(about = "Floods a TCP port with segments of no connection")]
struct Options {
    /// Whom to flood
    #[arg(long)]
    to: SocketAddrV4,
    /// With what
    #[arg(long, value_enum)]
    kind: Kind,
    /// Packets in a second; fewer where the machine is slower
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    rate: u64,
    /// For how long
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// From whom it seems to come
    #[arg(long, value_enum, default_value = "random")]
    sources: Sources,
    /// The one source
    #[arg(long, default_value = "198.19.0.1")]
    from: Ipv4Addr,
    /// Of what is drawn by chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// SYNs
    Syn,
    /// First fragments, whose others never come
    Fragment,
    /// ACKs without payload
    Ack,
    /// RSTs
    Rst,
    /// Segments with 512 octets of payload
    Data,
    /// A TCP header and payload drawn by chance but for the port
    Junk,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sources {
    /// One address, every port
    One,
    /// Addresses of 198.19.0.0/16, every port
    Random,
}

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// An IPv4 packet for a raw socket: the kernel fills in its length and header checksum.
struct Packet {
    octets: Vec<u8>,
    kind: Kind,
    to: SocketAddrV4,
}

impl Packet {
    fn new(kind: Kind, to: SocketAddrV4) -> Self {
        let payload = match kind {
            Kind::Data => 512,
            Kind::Fragment => 8,
            Kind::Junk => 64,
            Kind::Syn | Kind::Ack | Kind::Rst => 0,
        };
        let mut octets = vec![0; 2 * HEADER + payload];
        octets[0] = 0x45;
        if kind == Kind::Fragment {
            // More fragments.
            octets[6] = 0x20;
        }
        octets[8] = 64;
        octets[9] = 6;
        octets[16..20].copy_from_slice(&to.ip().octets());
        let tcp = &mut octets[HEADER..];
        tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
        tcp[12] = 5 << 4;
        tcp[13] = match kind {
            Kind::Syn | Kind::Fragment => SYN,
            Kind::Rst => RST,
            Kind::Data => PSH | ACK,
            Kind::Ack | Kind::Junk => ACK,
        };
        tcp[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
        Self { octets, kind, to }
    }

    /// Makes it the next one, from this address.
    fn draw(&mut self, from: Ipv4Addr, chance: &mut Chance) {
        let [word, other] = [chance.next(), chance.next()].map(u64::to_be_bytes);
        self.octets[4..6].copy_from_slice(&other[4..6]);
        self.octets[12..16].copy_from_slice(&from.octets());
        let tcp = &mut self.octets[HEADER..];
        tcp[4..12].copy_from_slice(&word);
        if self.kind == Kind::Junk {
            tcp[12..20].copy_from_slice(&chance.next().to_be_bytes());
            for eight in tcp[HEADER..].as_chunks_mut::<8>().0 {
                *eight = chance.next().to_be_bytes();
            }
        }
        // A source port that is none of a well-known service.
        tcp[0] = other[0] | 0x80;
        tcp[1] = other[1];
        tcp[16..18].fill(0);
        let sum = checksum::pseudo_v4(from, *self.to.ip(), tcp.len()) + checksum::sum(tcp);
        tcp[16..18].copy_from_slice(&checksum::fold(sum).to_be_bytes());
    }
}

fn main() {
    let options = Options::parse();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
        .unwrap_or_else(|error| panic!("a raw socket: {error}; run it as root"));
    let to = SocketAddr::new(IpAddr::V4(*options.to.ip()), 0);
    let mut chance = Chance(options.seed);
    let mut packet = Packet::new(options.kind, options.to);
    let limit = Duration::from_secs(options.seconds);
    let (start, mut sent, mut refused) = (Instant::now(), 0_u64, 0_u64);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= limit {
            break;
        }
        let due = elapsed.as_nanos() as u64 / 1000 * options.rate / 1_000_000;
        if sent + refused >= due {
            std::hint::spin_loop();
            continue;
        }
        for _ in 0..BATCH {
            let from = match options.sources {
                Sources::One => options.from,
                Sources::Random => {
                    let [a, b, ..] = chance.next().to_be_bytes();
                    Ipv4Addr::new(198, 19, a, b)
                }
            };
            packet.draw(from, &mut chance);
            match rustix::net::sendto(&socket, &packet.octets, SendFlags::empty(), &to) {
                Ok(_) => sent += 1,
                Err(_) => refused += 1,
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = sent as f64 / seconds;
    println!(
        "{{\"sent\":{sent},\"refused\":{refused},\"seconds\":{seconds:.3},\"rate\":{rate:.0}}}"
    );
}
