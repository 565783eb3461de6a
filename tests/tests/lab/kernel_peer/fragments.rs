//! A path that cuts packets, as one without path MTU discovery does (RFC 5044 section A.5.1).

use rnic::WrOpcode;
use rnic_tests::pattern::Pattern;

use super::bench::{Bench, Initiator, Terms};
use super::exchange::completed;
use super::peer::Cut;

const LENGTH: usize = 16 << 20;

#[test]
fn segments_that_a_router_fragments_arrive_whole() {
    let (bench, routers) = Bench::routed("kernel-fragments");
    // Linux sends without Don't Fragment then.
    let kernel = &bench.kernel.namespace;
    kernel.sysctl("net.ipv4.ip_no_pmtu_disc", "1");
    for (name, initiator) in [("narrow", Initiator::Peer), ("narrower", Initiator::Us)] {
        let before = bench.daemon.counter("rx_reassembled");
        let (mut peer, end) = bench.connected(Terms::new(initiator, 2), LENGTH);
        routers.set_mtu(if name == "narrow" { 1300 } else { 600 });
        peer.cut = Cut::Together;
        let bytes = Pattern::bytes(11, LENGTH);
        end.post_recv(1, 0..0);
        let (stag, base) = (end.region.stag(), end.region.addr());
        peer.rdma_write(stag, base, &bytes);
        peer.send(&[]);
        let _ = completed(&end, 1, WrOpcode::Recv);
        assert!(end.content() == bytes, "{name}: the Write changed");
        let whole = bench.daemon.counter("rx_reassembled") - before;
        assert!(
            whole > (LENGTH / 1460 / 2) as u64,
            "{name}: {whole} packets"
        );
        routers.set_mtu(1500);
    }
    assert!(bench.daemon.counter("steering_redirected_fragment") > 0);
}
