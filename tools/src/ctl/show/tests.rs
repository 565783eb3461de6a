use rnic::admin::{ClientInfo, Holding, LimitInfo, QpInfo, RegionInfo};
use rnic::admin::{MemoryKind, PdId};
use rnic::{CqId, QpNum, QpState};

use super::*;

fn shown(object: Object) -> Shown {
    Shown {
        interface: Some("eth1".to_owned()),
        object,
    }
}

fn client() -> Shown {
    shown(Object::Client(ClientInfo {
        client: ClientId(3),
        pid: 77,
        uid: 1000,
        gid: 1000,
        program: "kv".to_owned(),
        holds: vec![
            Holding {
                name: "queue_pairs".to_owned(),
                held: 2,
                limit: 1024,
            },
            Holding {
                name: "registered_bytes".to_owned(),
                held: 3 << 29,
                limit: 64 << 30,
            },
        ],
        refused: 0,
    }))
}

fn queue_pair() -> Shown {
    shown(Object::QueuePair(QpInfo {
        qp: QpNum(9),
        client: ClientId(3),
        state: QpState::Rts,
        pd: PdId(1),
        send_cq: CqId(4),
        recv_cq: CqId(5),
        srq: None,
        sq_depth: 16,
        rq_depth: 16,
        connection: Some((
            "198.18.0.1:7000".parse().unwrap(),
            "[2001:db8::2]:7".parse().unwrap(),
        )),
        held: None,
    }))
}

fn shown_to_people(kind: Kind, object: &Shown, several: bool) -> String {
    let programs = Programs::of(&[client()]);
    table(kind, std::slice::from_ref(object), &programs, several).text(None)
}

#[test]
fn people_see_the_program_beside_its_client_and_what_it_holds_of_its_limits() {
    let shown = shown_to_people(Kind::QueuePairs, &queue_pair(), false);
    assert!(shown.contains("3 (kv)"), "{shown}");
    assert!(
        shown.contains("198.18.0.1:7000  [2001:db8::2]:7"),
        "{shown}"
    );
    let shown = shown_to_people(Kind::Clients, &client(), false);
    assert!(shown.contains("2/1024"), "{shown}");
    assert!(shown.contains("1.5 GiB/64 GiB"), "{shown}");
}

#[test]
fn the_interface_is_shown_where_there_are_several() {
    let shown = |several| shown_to_people(Kind::Clients, &client(), several);
    assert!(shown(true).contains("eth1"));
    assert!(!shown(false).contains("eth1"));
}

/// Programs depend on these names: a change of one is a change of the interface.
#[test]
fn json_has_the_documented_keys() {
    let value = json(&queue_pair());
    let keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    let expected = [
        "client",
        "connection",
        "held",
        "interface",
        "pd",
        "qp",
        "recv_cq",
        "rq_depth",
        "send_cq",
        "sq_depth",
        "srq",
        "state",
    ];
    assert_eq!(keys, expected);
    assert_eq!(value["connection"][0], "198.18.0.1:7000");
    assert_eq!(value["qp"], 9);
    assert_eq!(value["state"], "Rts");
}

#[test]
fn a_region_is_shown_by_its_index_and_has_no_key() {
    let region = shown(Object::Region(RegionInfo {
        index: 0x12,
        client: ClientId(3),
        pd: PdId(1),
        window: false,
        memory: MemoryKind::Adopted,
        valid: true,
        qp: None,
        access: Access::LOCAL_WRITE,
        bytes: 8192,
    }));
    assert!(json(&region).get("key").is_none() && json(&region).get("stag").is_none());
    let shown = shown_to_people(Kind::Regions, &region, false);
    assert!(shown.contains("0x000012"), "{shown}");
    assert!(shown.contains("adopted"), "{shown}");
    assert_eq!(json(&region)["memory"], "adopted");
    assert_eq!(number(&region.object), Some(0x12));
    assert_eq!(owner(&region.object), Some(ClientId(3)));
}

#[test]
fn a_limit_whose_use_is_not_told_has_a_dash() {
    let object = Object::Limit(LimitInfo {
        scope: Scope::Device,
        name: "clients".to_owned(),
        held: None,
        limit: 256,
    });
    let limit = Shown {
        interface: None,
        object,
    };
    let shown = shown_to_people(Kind::Limits, &limit, true);
    let cells: Vec<_> = shown.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(cells, ["device", "clients", "-", "256"]);
}
