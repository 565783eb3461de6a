//! A bond's frames come by several devices, each with queues of its own. The test frame comes by queue 0 of the loopback
//! interface.

use super::*;

/// Of the loopback interface, in each network namespace.
const LOOPBACK: u32 = 1;
const OTHER: u32 = 77;

/// What becomes of a claimed frame when these are the members, and one queue of one of them has a socket.
fn found(members: &[u32], device: usize, queue: u32) -> &'static str {
    let mut found = Vec::new();
    for variant in [Variant::Frags, Variant::Plain] {
        let mut program = Program::open("test", members, &SteeringConfig::UNLIMITED).unwrap();
        program.load(variant).unwrap();
        let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        program.set_queue(device, queue, socket.as_fd()).unwrap();
        program.claim(Protocol::Tcp, OURS_V4.into(), PORT).unwrap();
        let mut bench = Bench {
            program,
            variant,
            _socket: socket,
        };
        found.push(bench.run(&tcp_v4()));
    }
    assert_eq!(found[0], found[1]);
    found[0]
}

#[test]
fn a_frame_goes_to_the_socket_of_the_member_and_queue_that_it_came_by() {
    assert_eq!(found(&[LOOPBACK], 0, 0), "redirected");
    assert_eq!(found(&[OTHER, LOOPBACK], 1, 0), "redirected");
    let last = MAX_DEVICES - 1;
    let all: Vec<u32> = (0..last as u32)
        .map(|n| OTHER + n)
        .chain([LOOPBACK])
        .collect();
    assert_eq!(found(&all, last, 0), "redirected");
}

#[test]
fn a_frame_of_another_member_queue_or_device_passes() {
    assert_eq!(found(&[OTHER, LOOPBACK], 0, 0), "pass_no_socket");
    assert_eq!(found(&[LOOPBACK, OTHER], 0, 1), "pass_no_socket");
    assert_eq!(found(&[LOOPBACK, OTHER], 1, 0), "pass_no_socket");
    assert_eq!(found(&[OTHER], 0, 0), "pass_no_socket");
}
