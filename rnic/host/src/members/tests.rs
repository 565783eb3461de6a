use super::*;

fn member(index: u32, queues: u32, carries: bool) -> Member {
    Member {
        name: format!("eth{index}"),
        index,
        queues: (0..queues).collect(),
        carries,
    }
}

fn bond(all: &[(u32, u32, bool)]) -> Members {
    let member = |(index, queues, carries): &_| member(*index, *queues, *carries);
    Members {
        is_bond: true,
        all: all.iter().map(member).collect(),
    }
}

#[test]
fn each_shard_has_as_many_queues_of_every_member() {
    let equal = bond(&[(1, 4, true), (2, 4, false)]);
    let suits: Vec<_> = (0..=9).filter(|shards| equal.suit(*shards)).collect();
    assert_eq!(suits, [0, 1, 2, 4]);
    assert_eq!(
        (equal.queues(), equal.shards(64), equal.shards(3)),
        (8, 4, 2)
    );
    let odd = bond(&[(1, 4, true), (2, 3, true)]);
    assert_eq!((odd.queues(), odd.shards(64)), (7, 1));
    let alone = Members {
        is_bond: false,
        all: vec![member(1, 3, true)],
    };
    assert_eq!((alone.shards(64), alone.shards(2)), (3, 2));
    assert!(!alone.suit(4));
}

#[test]
fn a_shard_is_told_of_its_own_queues_in_their_order() {
    let served = bond(&[(1, 2, true), (2, 2, true)]);
    let now = bond(&[(1, 2, false), (2, 2, true)]);
    assert_eq!(served.exits(0, 1, &now), [false, false, true, true]);
    for shard in 0..2 {
        assert_eq!(served.exits(shard, 2, &now), [false, true]);
    }
    // One that is a member no more, and one that was none.
    let now = bond(&[(2, 2, true), (3, 2, true)]);
    assert_eq!(served.exits(0, 1, &now), [false, false, true, true]);
}

#[test]
fn queues_that_came_later_are_counted_and_those_that_went_are_not() {
    let served = bond(&[(1, 2, true), (2, 2, true)]);
    assert_eq!(served.missing(&served), 0);
    assert_eq!(served.missing(&bond(&[(1, 4, true)])), 2);
    assert_eq!(
        served.missing(&bond(&[(1, 1, true), (2, 2, true), (3, 8, false)])),
        8
    );
}

#[test]
fn what_sends_with_several_addresses_or_by_all_members_is_refused_by_name() {
    let interface = Interface {
        name: "bond0".to_owned(),
        index: 1,
        mac: [2; 6],
        defaults: rnic_net::PathDefaults::new(1500),
    };
    for good in [
        BondMode::BalanceRr,
        BondMode::ActiveBackup,
        BondMode::BalanceXor,
        BondMode::Ieee8023Ad,
    ] {
        let told = [
            InfoBond::Mode(good),
            InfoBond::FailOverMac(BondFailOverMac::None),
        ];
        check(&told, &interface).unwrap();
    }
    for bad in [
        BondMode::Broadcast,
        BondMode::BalanceTlb,
        BondMode::BalanceAlb,
    ] {
        let error = check(&[InfoBond::Mode(bad)], &interface)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("bond0 is a bond of mode {bad}")),
            "{error}"
        );
    }
    for bad in [BondFailOverMac::Active, BondFailOverMac::Follow] {
        let error = check(&[InfoBond::FailOverMac(bad)], &interface).unwrap_err();
        assert!(
            error.to_string().contains("set fail_over_mac none"),
            "{error}"
        );
    }
}

#[test]
fn a_member_carries_frames_while_it_is_active_and_has_a_link() {
    let link = |state, status| {
        let told = vec![
            InfoBondPort::BondPortState(state),
            InfoBondPort::MiiStatus(status),
        ];
        let mut link = LinkMessage::default();
        let info = LinkInfo::PortData(InfoPortData::BondPort(told));
        link.attributes.push(LinkAttribute::LinkInfo(vec![info]));
        link
    };
    assert!(carries(&link(BondPortState::Active, MiiStatus::Up)));
    assert!(!carries(&link(BondPortState::Active, MiiStatus::GoingDown)));
    assert!(!carries(&link(BondPortState::Active, MiiStatus::Down)));
    assert!(!carries(&link(BondPortState::Backup, MiiStatus::Up)));
    assert!(!carries(&LinkMessage::default()));
}

#[test]
fn dedicated_queues_are_the_same_of_each_member_and_must_be_there() {
    let all = bond(&[(1, 4, true), (2, 4, true)]);
    assert_eq!(all.clone().only(None).unwrap(), all);
    let only = all.clone().only(Some(&[3, 1])).unwrap();
    assert!(only.all.iter().all(|member| member.queues == [3, 1]));
    assert_eq!((only.queues(), only.shards(64)), (4, 2));
    assert_eq!(only.missing(&only), 0);
    let now = bond(&[(2, 4, true)]);
    assert_eq!(only.exits(0, 2, &now), [false, true]);
    assert_eq!(only.all_exits(&now), [false, false, true, true]);
    let error = all.only(Some(&[2, 3, 4])).unwrap_err();
    assert!(
        error.to_string().contains("eth1 has 4 RX queue(s)"),
        "{error}"
    );
}
