use super::*;

const TCP: Protocol = Protocol::Tcp;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn policy(direction: IpsecDirection, ends: (&str, &str), action: IpsecAction) -> IpsecPolicy {
    IpsecPolicy {
        direction,
        is_sub: false,
        priority: 100,
        index: 9,
        source: ends.0.parse().unwrap(),
        destination: ends.1.parse().unwrap(),
        protocol: 0,
        source_port: PortSelector::default(),
        destination_port: PortSelector::default(),
        action,
    }
}

fn out(action: IpsecAction) -> IpsecPolicy {
    policy(IpsecDirection::Out, ("198.18.0.0/24", "198.18.0.2"), action)
}

fn forbids(policies: &[IpsecPolicy], protocol: Protocol, remote: &str) -> bool {
    let all = IpsecPolicies::new(policies.to_vec(), [false; 2]);
    let found = all.forbid(protocol, at("198.18.0.1:7000"), at(remote));
    found.is_some()
}

#[test]
fn what_is_blocked_or_to_be_protected_is_forbidden_either_way() {
    use IpsecDirection::{In, Out};
    for action in [IpsecAction::Block, IpsecAction::Protect] {
        let inward = policy(In, ("198.18.0.2", "198.18.0.1"), action);
        for policies in [[out(action)], [inward]] {
            assert!(forbids(&policies, TCP, "198.18.0.2:1"));
            assert!(forbids(&policies, Protocol::Sctp, "198.18.0.2:1"));
            assert!(!forbids(&policies, TCP, "198.18.0.3:1"));
            assert!(!forbids(&policies, TCP, "[2001:db8::2]:1"));
        }
    }
    let outward = policy(Out, ("198.18.0.2", "198.18.0.1"), IpsecAction::Block);
    assert!(!forbids(&[outward], TCP, "198.18.0.2:1"));
}

#[test]
fn the_policy_with_the_lowest_priority_decides() {
    let allow = |priority| IpsecPolicy {
        priority,
        ..out(IpsecAction::Clear)
    };
    let block = out(IpsecAction::Block);
    assert!(!forbids(&[block, allow(99)], TCP, "198.18.0.2:1"));
    assert!(forbids(&[block, allow(101)], TCP, "198.18.0.2:1"));
    // Of those with one priority each has to allow.
    assert!(forbids(&[allow(100), block], TCP, "198.18.0.2:1"));
    let sub = IpsecPolicy {
        is_sub: true,
        ..block
    };
    assert!(forbids(&[sub, allow(1)], TCP, "198.18.0.2:1"));
}

#[test]
fn protocols_and_ports_select() {
    let block = IpsecPolicy {
        protocol: 6,
        destination_port: PortSelector {
            value: 7000,
            mask: 0xffff,
        },
        ..out(IpsecAction::Block)
    };
    assert!(forbids(&[block], TCP, "198.18.0.2:7000"));
    assert!(!forbids(&[block], TCP, "198.18.0.2:7001"));
    assert!(!forbids(&[block], Protocol::Sctp, "198.18.0.2:7000"));
}

#[test]
fn a_default_that_blocks_is_for_what_no_policy_selects() {
    let (local, remote) = (at("198.18.0.1:1"), at("198.18.0.2:2"));
    for (blocks, word) in [([true, false], "out"), ([false, true], "in")] {
        let all = IpsecPolicies::new(Vec::new(), blocks);
        let why = all.forbid(TCP, local, remote).unwrap();
        assert_eq!(why, format!("default policy `{word} block`"));
    }
    let all = IpsecPolicies::new(vec![out(IpsecAction::Clear)], [true, false]);
    assert_eq!(all.forbid(TCP, local, remote), None);
}

#[test]
fn policies_that_only_allow_forbid_nothing_and_too_many_forbid_all() {
    let all = IpsecPolicies::new(vec![out(IpsecAction::Clear)], [false; 2]);
    assert!(all.forbid_nothing());
    let many = vec![out(IpsecAction::Block); IpsecPolicies::MAX + 1];
    assert!(forbids(&many, TCP, "203.0.113.1:1"));
}

#[test]
fn a_policy_is_named_as_the_kernels_tool_does() {
    let block = IpsecPolicy {
        protocol: 6,
        destination_port: PortSelector {
            value: 7000,
            mask: 0xffff,
        },
        ..out(IpsecAction::Block)
    };
    let expected =
        "src 198.18.0.0/24 dst 198.18.0.2/32 proto 6 dport 7000 dir out block priority 100 index 9";
    assert_eq!(block.to_string(), expected);
}
