use super::*;

const TEXT: &str = "root:x:0:\nusers:x:100:alice\nrnic:x:987:alice,bob\nbroken\n";

#[test]
fn the_group_that_may_use_a_socket_is_told_and_how_to_join_it() {
    let socket = Path::new("/run/rnicd/rnicd.sock");
    assert_eq!(
        sentence(Some((socket, 987)), TEXT),
        "/run/rnicd/rnicd.sock is open to group rnic: `adduser USER rnic` as root, then log in again"
    );
    let unknown = sentence(Some((socket, 98)), TEXT);
    assert!(unknown.contains("open to group 98: have USER"), "{unknown}");
}

/// Nobody is told to become one of root's group.
#[test]
fn where_no_group_may_it_is_told_how_one_can() {
    let socket = Path::new("/run/rnicd/rnicd.sock");
    for open in [None, Some((socket, 0))] {
        let told = sentence(open, TEXT);
        assert!(told.contains("`socket_group = \"GROUP\"`"), "{told}");
    }
}
