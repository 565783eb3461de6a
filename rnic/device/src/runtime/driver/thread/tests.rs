//! A shard that panics leaves no half of an RNIC behind.

use std::os::unix::process::ExitStatusExt;
use std::process::Command as Program;

use rnic_engine::capture::{Capture, SeenFrame};
use rnic_engine::shard::{Shard, ShardConfig};
use rnic_ipc::capture::Filter;
use rnic_xsk::{ChunkSize, MemoryPort, Umem};

use super::*;

/// Set in the process that is to end.
const PLANTED: &str = "RNIC_TEST_PLANTED_PANIC";
const SIGABRT: i32 = 6;

/// Panics on the shard's core, in the middle of its work.
#[derive(Debug)]
struct Bug;

impl Capture for Bug {
    fn frame(&mut self, _: &SeenFrame<'_>) {
        panic!("planted");
    }
}

/// A shard that meets a bug at its first frame; a thread that commands it waits.
fn meet_a_bug() {
    let (umem, pool) = Umem::heap(2048, ChunkSize::Bytes2048);
    let (port, wire) = MemoryPort::intercepted(&umem, 64);
    let zero = userspace_net::Instant::ZERO;
    let shard = Shard::new(ShardConfig::default(), pool, vec![port], zero);
    let engine = Engine::new(shard, 0, Instant::now());
    let kicks = Arc::new(Kicks::new().unwrap());
    let (events, _listening) = crossbeam::channel::bounded(8);
    let shared = (kicks, Beat::default());
    let config = ThreadConfig {
        core: None,
        polling: Polling::Event,
        seccomp: true,
    };
    let handle = start(engine, shared, events, config).unwrap();
    let plant = Command::AddCapture {
        number: 0,
        filter: Filter::default(),
        sink: Box::new(Bug),
    };
    let (answer, _) = handle.begin(plant).unwrap().recv().unwrap();
    answer.unwrap();
    assert!(wire.push(&[0; 60]));
    // Without a supervisor this process would live on, with a shard that is gone.
    std::thread::sleep(Duration::from_secs(30));
    std::process::exit(0);
}

#[test]
fn a_panic_of_the_shard_ends_the_process_with_a_message() {
    if std::env::var_os(PLANTED).is_some() {
        meet_a_bug();
    }
    let name =
        "runtime::driver::thread::tests::a_panic_of_the_shard_ends_the_process_with_a_message";
    let ended = Program::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PLANTED, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(SIGABRT), "{said}");
    assert!(
        said.contains("the RNIC's shard panicked, which is a bug: ending the process"),
        "{said}"
    );
}

#[test]
fn the_kernel_shows_all_of_a_thread_s_name() {
    assert!(thread_name(63).len() <= 15);
}
