//! How fast the engine is without a kernel: both hosts in one thread, frames copied once by the
//! link in memory. For comparing within one machine and one hour only.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::shard::Shard;
use rnic_ipc::control::MpaOptions;
use rnic_ipc::work::WrOpcode;
use rnic_xsk::{ChunkSize, MemoryPort, Umem};
use userspace_tcp::Instant;

use crate::side::{Side, SideConfig};

const MESSAGE: usize = 1 << 20;
const IN_FLIGHT: u64 = 8;
const LASTS: Duration = Duration::from_secs(3);

#[test]
#[ignore = "a measurement: run it in release mode, alone"]
fn writes_of_1_mib_in_segments_of_1460_octets() {
    measure("write", WrOpcode::Write);
}

#[test]
#[ignore = "a measurement: run it in release mode, alone"]
fn reads_of_1_mib_in_segments_of_1460_octets() {
    measure("read", WrOpcode::Read);
}

fn measure(name: &str, opcode: WrOpcode) {
    let config = || {
        let mut side = SideConfig {
            frames: 2048,
            ..SideConfig::default()
        };
        side.shard.tcp.timestamps = false;
        side
    };
    let (umem_a, pool_a) = Umem::heap(config().frames, ChunkSize::Octets2048);
    let (umem_b, pool_b) = Umem::heap(config().frames, ChunkSize::Octets2048);
    let (port_a, port_b) = MemoryPort::pair(&umem_a, &umem_b, 256);
    let frames = umem_a.frames();
    let shard_a = Shard::new(config().shard, pool_a, vec![port_a], Instant::ZERO);
    let shard_b = Shard::new(config().shard, pool_b, vec![port_b], Instant::ZERO);
    let mut a = Side::over(1, "198.18.0.1:7174".parse().unwrap(), shard_a, None, frames);
    let mut b = Side::over(2, "198.18.0.2:7174".parse().unwrap(), shard_b, None, frames);
    let clock = std::time::Instant::now();
    let now = || Instant::from_nanos(clock.elapsed().as_nanos() as u64 + 1);

    b.listen(1, now());
    let (qp_a, qp_b) = (a.create_qp(), b.create_qp());
    let path = a.path_to(&b);
    a.connect(
        qp_a,
        40_000,
        b.address,
        path,
        MpaOptions::default(),
        b"",
        now(),
    )
    .unwrap();
    while !a.is_established(qp_a) {
        a.shard.poll(now());
        b.shard.poll(now());
        a.collect();
        b.collect();
        if let Some((request, mpa, _)) = b.take_request() {
            let command = Command::Accept {
                request,
                qp: qp_b,
                mpa,
                private_data: Vec::new(),
            };
            b.shard.execute(command, now()).unwrap();
        }
    }
    a.fill(0, MESSAGE, 1);
    let (stag, mut posted, mut done) = (b.stag, 0, 0);
    let start = std::time::Instant::now();
    while start.elapsed() < LASTS {
        while posted < done + IN_FLIGHT {
            let at = (posted % IN_FLIGHT / 2) as usize * MESSAGE;
            let remote = at;
            a.post_work(qp_a, opcode, posted, at, (stag, remote), MESSAGE);
            posted += 1;
        }
        for _ in 0..16 {
            a.shard.poll(now());
            b.shard.poll(now());
        }
        a.collect();
        done += a.completions.len() as u64;
        a.completions.clear();
    }
    let seconds = start.elapsed().as_secs_f64();
    let octets = done as f64 * MESSAGE as f64;
    println!(
        "{name}: {:.3e} octets/s ({:.2} Gbit/s), {done} messages in {seconds:.2} s",
        octets / seconds,
        octets * 8.0 / seconds / 1e9
    );
    assert!(
        a.events.iter().chain(&b.events).count() <= 3,
        "{:?} {:?}",
        a.events,
        b.events
    );
    println!("bounced: {} {}", a.counter("bounced"), b.counter("bounced"));
}
