use std::net::TcpListener;

use super::*;

#[derive(Default)]
struct Log(Vec<(SocketAddr, bool)>);

impl Claims for Log {
    fn claim(&mut self, local: SocketAddr) -> Result<(), String> {
        self.0.push((local, true));
        Ok(())
    }

    fn release(&mut self, local: SocketAddr) {
        self.0.push((local, false));
    }
}

struct Refusing;

impl Claims for Refusing {
    fn claim(&mut self, _: SocketAddr) -> Result<(), String> {
        Err("full".to_owned())
    }

    fn release(&mut self, local: SocketAddr) {
        panic!("{local} was never claimed");
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn ports() -> Ports<Log> {
    Ports::new(Log::default(), PortSpace::Kernel)
}

fn kernel_has(local: SocketAddr) -> bool {
    TcpListener::bind(local).is_err()
}

#[test]
fn a_port_is_taken_in_the_kernel_and_in_steering_until_released() {
    let ports = ports();
    let reserved = ports.listen(ANY, 0).unwrap();
    let local = reserved.local();
    assert_ne!(local.port(), 0);
    assert!(kernel_has(local));
    ports.used(reserved, Stamp(1));
    ports.unlistened(local);
    assert!(kernel_has(local));
    ports.released(local, Stamp(2));
    assert!(!kernel_has(local));
    ports.with_claims(|log| assert_eq!(log.0, [(local, true), (local, false)]));
}

#[test]
fn a_host_programs_port_is_in_use() {
    let host = TcpListener::bind(ANY).unwrap();
    let refusal = ports().listen(host.local_addr().unwrap(), 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
}

#[test]
fn a_foreign_address_is_not_local() {
    let refusal = ports()
        .listen("198.18.255.254:7471".parse().unwrap(), 0)
        .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::AddressNotLocal);
}

#[test]
fn a_second_listener_on_a_port_is_refused() {
    let ports = ports();
    let reserved = ports.listen(ANY, 0).unwrap();
    let local = reserved.local();
    assert_eq!(
        ports.listen(local, 0).unwrap_err().code,
        RefusalCode::PortInUse
    );
    ports.used(reserved, Stamp(1));
    assert_eq!(
        ports.listen(local, 0).unwrap_err().code,
        RefusalCode::PortInUse
    );
}

#[test]
fn a_refused_use_gives_the_port_back() {
    let ports = ports();
    let reserved = ports.listen(ANY, 0).unwrap();
    let local = reserved.local();
    ports.failed(reserved);
    assert!(!kernel_has(local));
    assert_eq!(ports.len(), 0);
}

#[test]
fn a_refused_claim_gives_the_port_back() {
    let ports = Ports::new(Refusing, PortSpace::Kernel);
    assert_eq!(ports.listen(ANY, 0).unwrap_err().code, RefusalCode::Host);
    assert_eq!(ports.len(), 0);
}

#[test]
fn a_release_that_crossed_with_a_new_use_is_void() {
    let ports = ports();
    let reserved = ports.listen(ANY, 0).unwrap();
    let local = reserved.local();
    ports.used(reserved, Stamp(1));
    ports.unlistened(local);
    // The shard releases at 2, listens again at 3; the release is heard before the answer ...
    let again = ports.listen(local, 0).unwrap();
    ports.released(local, Stamp(2));
    ports.used(again, Stamp(3));
    assert!(kernel_has(local));
    // ... or after it.
    ports.released(local, Stamp(2));
    assert!(kernel_has(local));
    ports.released(local, Stamp(4));
    assert!(!kernel_has(local));
}

#[test]
fn a_release_heard_before_the_answer_to_its_use_counts() {
    let ports = ports();
    let reserved = ports.connect(ANY, 0).unwrap();
    let local = reserved.local();
    ports.released(local, Stamp(2));
    assert!(kernel_has(local));
    ports.used(reserved, Stamp(1));
    assert!(!kernel_has(local));
}

#[test]
fn a_failed_second_use_leaves_the_first() {
    let ports = ports();
    let reserved = ports.listen(ANY, 0).unwrap();
    let local = reserved.local();
    ports.used(reserved, Stamp(1));
    ports.unlistened(local);
    let again = ports.listen(local, 0).unwrap();
    ports.failed(again);
    assert!(kernel_has(local));
    ports.released(local, Stamp(2));
    assert!(!kernel_has(local));
}

#[test]
fn each_connection_gets_a_port_of_its_own() {
    let ports = ports();
    let (a, b) = (
        ports.connect(ANY, 0).unwrap(),
        ports.connect(ANY, 0).unwrap(),
    );
    assert_ne!(a.local(), b.local());
    assert_eq!(ports.len(), 2);
}

#[test]
fn a_connection_from_a_named_port_has_it_alone() {
    for space in [PortSpace::Kernel, PortSpace::Own] {
        let ports = Ports::new(Log::default(), space);
        let free = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
        let reserved = ports.connect(free, 0).unwrap();
        assert_eq!(reserved.local(), free);
        for again in [ports.connect(free, 0), ports.listen(free, 0)] {
            assert_eq!(again.unwrap_err().code, RefusalCode::PortInUse, "{space:?}");
        }
        ports.failed(reserved);
        let listener = ports.listen(free, 0).unwrap();
        let refusal = ports.connect(free, 0).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::PortInUse, "{space:?}");
        ports.failed(listener);
    }
}

#[test]
fn ports_of_a_space_of_our_own_are_taken_from_nobody_and_no_port_is_given_twice() {
    let ports = Ports::new(Log::default(), PortSpace::Own);
    let host = TcpListener::bind(ANY).unwrap();
    let taken_by_host = host.local_addr().unwrap();
    let listener = ports.listen(taken_by_host, 0).unwrap();
    let refusal = ports.listen(taken_by_host, 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
    let listener_at = listener.local();
    ports.used(listener, Stamp(1));
    let mut given = std::collections::HashSet::new();
    for _ in DYNAMIC {
        let Ok(reserved) = ports.connect(ANY, 0) else {
            break;
        };
        let local = reserved.local();
        assert!(given.insert(local) && local != listener_at);
        ports.used(reserved, Stamp(2));
    }
    let refusal = ports.connect(ANY, 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
    let again = *given.iter().next().unwrap();
    ports.released(again, Stamp(3));
    let reserved = ports.connect(ANY, 0).unwrap();
    assert_eq!(reserved.local(), again);
    ports.failed(reserved);
    // Another address has them all.
    ports.failed(ports.connect("127.0.0.2:0".parse().unwrap(), 0).unwrap());
}
