//! An interface with VLANs of the kernel's, and one in a VRF.

use rnic_tests::kernels::Lans;

#[test]
fn a_vlan_of_the_kernel_s_carries_bytes_and_a_vrf_is_named() {
    let lans = Lans::boot();
    lans.carry_bytes_with_siw();
    let said = lans.check_in_vrf();
    assert!(said.contains("interface veth1: it is in a VRF"), "{said}");
}
