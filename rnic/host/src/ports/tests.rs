use std::net::TcpListener;

use super::*;

#[derive(Default)]
struct Log(Vec<(SocketAddr, bool)>);

impl Claims for Log {
    fn claim(&mut self, at: LocalPort) -> Result<(), String> {
        self.0.push((at.local, true));
        Ok(())
    }

    fn release(&mut self, at: LocalPort) {
        self.0.push((at.local, false));
    }
}

struct Refusing;

impl Claims for Refusing {
    fn claim(&mut self, _: LocalPort) -> Result<(), String> {
        Err("full".to_owned())
    }

    fn release(&mut self, at: LocalPort) {
        panic!("{at:?} was never claimed");
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn tcp(local: SocketAddr) -> LocalPort {
    LocalPort::new(Transport::Tcp, local)
}

fn ports() -> Ports<Log> {
    Ports::new(Log::default(), PortSpace::Kernel)
}

fn at(count: u64) -> Stamp {
    Stamp { shard: 0, count }
}

fn kernel_uses(local: SocketAddr) -> bool {
    TcpListener::bind(local).is_err()
}

#[test]
fn a_port_is_taken_in_the_kernel_and_in_steering_until_released() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    assert_ne!(local.port(), 0);
    assert!(kernel_uses(local));
    ports.used(reserved, &[at(1)]);
    ports.unlistened(tcp(local));
    assert!(kernel_uses(local));
    ports.released(tcp(local), at(2));
    assert!(!kernel_uses(local));
    ports.with_claims(|log| assert_eq!(log.0, [(local, true), (local, false)]));
}

#[test]
fn a_host_programs_port_is_in_use() {
    let host = TcpListener::bind(ANY).unwrap();
    let refusal = ports()
        .listen(tcp(host.local_addr().unwrap()), 0)
        .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
}

#[test]
fn a_foreign_address_is_not_local() {
    let refusal = ports()
        .listen(tcp("198.18.255.254:7471".parse().unwrap()), 0)
        .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::AddressNotLocal);
}

#[test]
fn a_second_listener_on_a_port_is_refused() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    assert_eq!(
        ports.listen(tcp(local), 0).unwrap_err().code,
        RefusalCode::PortInUse
    );
    ports.used(reserved, &[at(1)]);
    assert_eq!(
        ports.listen(tcp(local), 0).unwrap_err().code,
        RefusalCode::PortInUse
    );
}

#[test]
fn a_refused_use_gives_the_port_back() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    ports.failed(reserved);
    assert!(!kernel_uses(local));
    assert_eq!(ports.count(), 0);
}

#[test]
fn a_refused_claim_gives_the_port_back() {
    let ports = Ports::new(Refusing, PortSpace::Kernel);
    assert_eq!(
        ports.listen(tcp(ANY), 0).unwrap_err().code,
        RefusalCode::Host
    );
    assert_eq!(ports.count(), 0);
}

#[test]
fn a_release_that_crossed_with_a_new_use_is_void() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    ports.used(reserved, &[at(1)]);
    ports.unlistened(tcp(local));
    // The shard releases at 2, listens again at 3; the release is heard before the answer ...
    let again = ports.listen(tcp(local), 0).unwrap();
    ports.released(tcp(local), at(2));
    ports.used(again, &[at(3)]);
    assert!(kernel_uses(local));
    // ... or after it.
    ports.released(tcp(local), at(2));
    assert!(kernel_uses(local));
    ports.released(tcp(local), at(4));
    assert!(!kernel_uses(local));
}

#[test]
fn a_release_heard_before_the_answer_to_its_use_counts() {
    let ports = ports();
    let reserved = ports.connect(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    ports.released(tcp(local), at(2));
    assert!(kernel_uses(local));
    ports.used(reserved, &[at(1)]);
    assert!(!kernel_uses(local));
}

#[test]
fn a_failed_second_use_leaves_the_first() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    ports.used(reserved, &[at(1)]);
    ports.unlistened(tcp(local));
    let again = ports.listen(tcp(local), 0).unwrap();
    ports.failed(again);
    assert!(kernel_uses(local));
    ports.released(tcp(local), at(2));
    assert!(!kernel_uses(local));
}

#[test]
fn each_connection_gets_a_port_of_its_own() {
    let ports = ports();
    let (a, b) = (
        ports.connect(tcp(ANY), 0).unwrap(),
        ports.connect(tcp(ANY), 0).unwrap(),
    );
    assert_ne!(a.local(), b.local());
    assert_eq!(ports.count(), 2);
}

#[test]
fn a_connection_from_a_named_port_has_it_alone() {
    for space in [PortSpace::Kernel, PortSpace::Own] {
        let ports = Ports::new(Log::default(), space);
        let free = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
        let reserved = ports.connect(tcp(free), 0).unwrap();
        assert_eq!(reserved.local(), free);
        for again in [ports.connect(tcp(free), 0), ports.listen(tcp(free), 0)] {
            assert_eq!(again.unwrap_err().code, RefusalCode::PortInUse, "{space:?}");
        }
        ports.failed(reserved);
        let listener = ports.listen(tcp(free), 0).unwrap();
        let refusal = ports.connect(tcp(free), 0).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::PortInUse, "{space:?}");
        ports.failed(listener);
    }
}

#[test]
fn ports_of_a_space_of_our_own_are_taken_from_nobody_and_no_port_is_given_twice() {
    let ports = Ports::new(Log::default(), PortSpace::Own);
    let host = TcpListener::bind(ANY).unwrap();
    let taken_by_host = host.local_addr().unwrap();
    let listener = ports.listen(tcp(taken_by_host), 0).unwrap();
    let refusal = ports.listen(tcp(taken_by_host), 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
    let listener_at = listener.local();
    ports.used(listener, &[at(1)]);
    let mut given = std::collections::HashSet::new();
    for _ in DYNAMIC {
        let Ok(reserved) = ports.connect(tcp(ANY), 0) else {
            break;
        };
        let local = reserved.local();
        assert!(given.insert(local) && local != listener_at);
        ports.used(reserved, &[at(2)]);
    }
    let refusal = ports.connect(tcp(ANY), 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::PortInUse);
    let again = *given.iter().next().unwrap();
    ports.released(tcp(again), at(3));
    let reserved = ports.connect(tcp(ANY), 0).unwrap();
    assert_eq!(reserved.local(), again);
    ports.failed(reserved);
    // Another address has them all.
    ports.failed(
        ports
            .connect(tcp("127.0.0.2:0".parse().unwrap()), 0)
            .unwrap(),
    );
}

/// The same number is another port of another protocol. This kernel may have SCTP or not.
#[test]
fn ports_of_tcp_and_sctp_are_apart() {
    let ports = ports();
    let of_tcp = ports.listen(tcp(ANY), 0).unwrap();
    let local = of_tcp.local();
    let of_sctp = LocalPort::new(Transport::Sctp, local);
    let reserved = ports.listen(of_sctp, 0).unwrap();
    assert_eq!(reserved.local(), local);
    assert_eq!(
        ports.listen(of_sctp, 0).unwrap_err().code,
        RefusalCode::PortInUse
    );
    ports.used(of_tcp, &[at(1)]);
    ports.used(reserved, &[at(1)]);
    ports.unlistened(of_sctp);
    ports.released(of_sctp, at(2));
    assert_eq!(ports.count(), 1);
    assert!(kernel_uses(local), "TCP's port is still taken");
    let chosen = ports
        .connect(LocalPort::new(Transport::Sctp, ANY), 0)
        .unwrap();
    assert_ne!(chosen.local().port(), 0);
    ports.failed(chosen);
}

#[test]
fn a_port_is_kept_until_all_shards_that_used_it_have_released_it() {
    let ports = ports();
    let reserved = ports.listen(tcp(ANY), 0).unwrap();
    let local = reserved.local();
    let stamp = |shard, count| Stamp { shard, count };
    ports.used(reserved, &[stamp(0, 7), stamp(2, 1)]);
    ports.unlistened(tcp(local));
    ports.released(tcp(local), stamp(0, 8));
    ports.released(tcp(local), stamp(1, 9));
    assert!(kernel_uses(local), "the third shard has a connection there");
    ports.released(tcp(local), stamp(2, 2));
    assert!(!kernel_uses(local));
}
