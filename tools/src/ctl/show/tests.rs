use rnic::QpState;
use rnic::inspect::{ClientInfo, Holding, QpInfo, RegionInfo};
use serde::Deserialize;

use super::*;

/// Numbers as the RNIC's messages have them.
fn id<'de, T: Deserialize<'de>>(number: u32) -> T {
    let number = serde::de::value::U32Deserializer::<serde::de::value::Error>::new(number);
    T::deserialize(serde::de::value::NewtypeDeserializer(number)).unwrap()
}

fn client() -> Object {
    Object::Client(ClientInfo {
        client: ClientId(3),
        pid: 77,
        uid: 1000,
        gid: 1000,
        program: "kv".to_owned(),
        holds: vec![Holding {
            name: "queue_pairs".to_owned(),
            held: 2,
            limit: 1024,
        }],
        refused: 0,
    })
}
