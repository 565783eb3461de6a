//! A flood of strangers' segments, made in the kernel by an XDP program (`flood.bpf.c`): what somebody
//! on the network can send who has no connection. For the lab; it needs root and Linux 5.18, and ends
//! by itself. The interface's other end has to take frames without socket buffers: it has an XDP
//! program.
//!
//! `flood --interface rnic0 --mac 02:00:00:00:00:02 --to 198.18.0.2:18515 --kind syn --rate 500000`
#![forbid(unsafe_code)]

mod frame;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use aya::programs::{TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use clap::{Parser, ValueEnum};
use rustix::net::{AddressFamily, SocketType};

use crate::frame::Frame;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flood.bpf.o"));

/// Frames that the kernel makes before it hands them over: a veth's ring has 256 places, which the
/// flood has to share.
const BATCH: u32 = 64;
/// Between two runs of the program.
const PAUSE: Duration = Duration::from_micros(500);
/// What was missed for longer, because the machine was busy, is not made up.
const MISSED: Duration = Duration::from_millis(20);
/// How long it may take until the kernel has detached the program of a flood that was killed.
const DETACHED: Duration = Duration::from_secs(5);

#[derive(Parser)]
#[command(about = "Floods a TCP port with segments of no connection")]
struct Options {
    /// The interface that sends
    #[arg(long)]
    interface: String,
    /// The link address of whom to flood
    #[arg(long, value_parser = frame::mac)]
    mac: [u8; 6],
    /// Whom to flood
    #[arg(long)]
    to: SocketAddr,
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
    /// Segments with 512 bytes of payload
    Data,
    /// A TCP header and payload drawn by chance but for the port
    Junk,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sources {
    /// One address, 32768 ports
    One,
    /// 65536 addresses, 32768 ports: of 198.19.0.0/16, or of 2001:db8:ffff::/112
    Random,
}

/// The program, told where the fields of its frames are.
fn load(options: &Options, frame: &Frame) -> Ebpf {
    let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let out = any.and_then(|any| rustix::net::netdevice::name_to_index(any, &options.interface));
    let out = out.unwrap_or_else(|error| panic!("interface {}: {error}", options.interface));
    let source = match options.sources {
        Sources::One => 0,
        Sources::Random => frame.source,
    };
    EbpfLoader::new()
        .override_global("OUT", &out, true)
        .override_global("SOURCE", &source, true)
        .override_global("V4_ID", &frame.v4_id, true)
        .override_global("V4_CHECKSUM", &frame.v4_checksum, true)
        .override_global("V6_ID", &frame.v6_id, true)
        .override_global("TCP", &frame.tcp, true)
        .override_global("JUNK", &frame.junk, true)
        .override_global("CHANCE", &options.seed, true)
        .load(OBJECT)
        .unwrap_or_else(|error| panic!("the program's maps: {error}; run it as root"))
}

/// Attaches the program to the loopback interface, where nothing goes. The kernel keeps attached programs
/// at hand; for another one it would begin and end each run with an RCU grace period, in which nothing is
/// sent.
fn keep_at_hand(program: &mut Xdp) {
    let start = Instant::now();
    while let Err(error) = program.attach("lo", XdpMode::Skb) {
        assert!(start.elapsed() < DETACHED, "attach the program: {error}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn main() {
    let options = Options::parse();
    let frame = Frame::new(options.kind, options.to, options.mac);
    let mut ebpf = load(&options, &frame);
    let program = ebpf.program_mut("flood").expect("the object has it");
    let program: &mut Xdp = program.try_into().expect("it is an XDP program");
    let loaded = program.load();
    loaded.unwrap_or_else(|error| panic!("load the program: {error}; run it as root"));
    keep_at_hand(program);

    let limit = Duration::from_secs(options.seconds);
    let frames_of = |time: Duration| time.as_micros() as u64 * options.rate / 1_000_000;
    let (start, mut sent, mut missed) = (Instant::now(), 0, 0);
    let mut elapsed = Duration::ZERO;
    while elapsed < limit {
        let due = frames_of(elapsed) - sent - missed;
        let now = due.min(frames_of(MISSED).max(1));
        missed += due - now;
        if now > 0 {
            let mut run = TestRunOptions::new();
            run.data_in = Some(&frame.bytes);
            run.repeat = now as u32;
            run.attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
            let ran = program.test_run(run);
            ran.unwrap_or_else(|error| panic!("run the program: {error}; it needs Linux 5.18"));
            sent += now;
        }
        std::thread::sleep(PAUSE);
        elapsed = start.elapsed();
    }
    let seconds = elapsed.as_secs_f64();
    let rate = sent as f64 / seconds;
    println!("{{\"sent\":{sent},\"seconds\":{seconds:.3},\"rate\":{rate:.0}}}");
}
