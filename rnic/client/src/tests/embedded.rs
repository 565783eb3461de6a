//! Calls that wait for their own completions, over the loopback of an RNIC in this process.

use std::net::Ipv4Addr;
use std::time::Duration;

use rnic_ipc::work::WcStatus;

use crate::embedded::{Device, DeviceConfig, Runtime, SctpUdp, ShardCount};
use crate::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, Error, ListenOptions,
    MemoryRegion, QpConfig, QueuePair, WorkCompletion, block_on,
};

const SOON: Duration = Duration::from_secs(60);
const BYTES: usize = 4096;

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = pd.register(BYTES, access).unwrap();
        let cq = context.create_cq(64).unwrap();
        let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
        Self { qp, cq, region }
    }
}

/// A context, and two ends of it that are connected.
fn connected(runtime: Runtime) -> (Context, [End; 2]) {
    let mut config = DeviceConfig::loopback();
    config.runtime = runtime;
    let context = Context::embedded(&Device::open(config).unwrap()).unwrap();
    let ends = [End::new(&context), End::new(&context)];
    let listener = context
        .listen(
            (Ipv4Addr::LOCALHOST, 0),
            ListenOptions::default().backlog(1),
        )
        .unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.accept().wait(SOON).unwrap();
            request
                .accept(&ends[1].qp, AcceptOptions::default())
                .wait(SOON)
                .unwrap();
        });
        let options = ConnectOptions::default();
        ends[0]
            .qp
            .connect(listener.local_addr(), options)
            .wait(Duration::from_secs(10))
            .unwrap();
        accepted.join().unwrap();
    });
    (context, ends)
}

fn work_is_waited_for(runtime: Runtime) {
    let (_context, [a, b]) = connected(runtime);
    let half = BYTES / 2;
    let (near, far) = (
        [a.region.slice(0..half).unwrap()],
        b.region.remote(0..half).unwrap(),
    );
    a.region.write(0, &[7; BYTES]).unwrap();
    a.qp.write(&near, far).wait(SOON).unwrap();
    // A Read brings what the Write put there.
    let back = [a.region.slice(half..BYTES).unwrap()];
    a.region.write(half, &vec![0; half]).unwrap();
    let read = block_on(a.qp.read(&back, far)).unwrap();
    assert_eq!(read.byte_len as usize, half);
    assert_eq!(a.region.to_vec(half..BYTES).unwrap(), vec![7; half]);

    // Beside a Write whose completion is polled.
    let mut received = b.qp.receive(&[b.region.slice(half..BYTES).unwrap()]);
    let sent = a.qp.send(&near);
    let back = a.region.remote(half..BYTES).unwrap();
    b.qp.post_write(9, &[], back).unwrap();
    assert_eq!(received.wait(SOON).unwrap().byte_len as usize, half);
    block_on(sent).unwrap();
    b.cq.readable().wait(SOON).unwrap();
    let mut done = [WorkCompletion::default(); 2];
    assert_eq!(b.cq.poll(&mut done).unwrap(), 1);
    assert_eq!(done[0].wr_id, 9);
}

#[test]
fn work_is_waited_for_with_an_engine_in_a_thread() {
    work_is_waited_for(Runtime::Thread);
}

#[test]
fn work_is_waited_for_with_an_engine_in_the_programs_calls() {
    work_is_waited_for(Runtime::Caller);
}

#[test]
fn work_whose_connection_ends_is_flushed_to_those_that_wait() {
    let (_context, [a, b]) = connected(Runtime::Thread);
    let received = a.qp.receive(&[]);
    b.qp.abort().unwrap();
    match block_on(received) {
        Err(Error::Work(failed)) => assert_eq!(failed.status, WcStatus::WorkRequestFlushed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn udp_ports_of_zero_are_refused() {
    for (port, peer_port, is_right) in [
        (0, None, false),
        (9899, Some(0), false),
        (9899, Some(9899), true),
    ] {
        let mut config = DeviceConfig::loopback();
        config.sctp_udp = Some(SctpUdp { port, peer_port });
        match Device::open(config) {
            Ok(_) => assert!(is_right, "{port}, {peer_port:?}"),
            Err(error) => assert!(error.to_string().contains("SCTP in UDP"), "{error}"),
        }
    }
}

/// The port of a device's link, which needs no privilege, is its own. With several shards, too.
#[test]
fn a_udp_port_is_one_devices_alone() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    for shards in [1, 2] {
        let open = || {
            let mut config = DeviceConfig::udp(at.to_string().parse().unwrap());
            config.shards = ShardCount::Number(shards);
            Device::open(config)
        };
        let device = open().unwrap();
        let error = open().unwrap_err().to_string();
        for words in [&at.to_string(), "can't be bound", "--sctp-udp-peer-port"] {
            assert!(error.contains(words), "no {words} in {error}");
        }
        device.shutdown();
    }
}
