//! An interface that is a bond: its members' queues have the sockets.

use rnic_tests::kernels::Bonds;

#[test]
fn a_transfer_survives_that_a_bond_s_members_lose_their_links_in_turn() {
    let bonds = Bonds::boot();
    bonds.survive("mode active-backup miimon 50", "--frames 8192");
    bonds.survive(
        "mode 802.3ad miimon 50 lacp_rate fast",
        "--frames 8192 --shards 2",
    );

    for (options, words) in [
        (
            "mode balance-alb miimon 50",
            "bond0 is a bond of mode balance-alb",
        ),
        (
            "mode broadcast miimon 50",
            "bond0 is a bond of mode broadcast",
        ),
        (
            "mode active-backup miimon 50 fail_over_mac active",
            "bond0 is a bond with fail_over_mac active",
        ),
    ] {
        let refused = bonds.refused(options);
        assert!(refused.contains(words), "{options}: {refused}");
    }
}
