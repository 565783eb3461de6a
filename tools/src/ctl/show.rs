//! Objects of the RNIC as rows for people, and as JSON.

use std::collections::BTreeMap;

use rnic::admin::{ConnectionInfo, Kind, Object, Scope};
use rnic::{Access, ClientId, Transport};
use serde_json::Value;

use super::table::Table;
use crate::size;

/// Programs' names by client, to stand beside its number.
#[derive(Clone, Debug, Default)]
pub struct Programs(BTreeMap<ClientId, String>);

impl Programs {
    /// Of the clients among these objects.
    pub fn of(objects: &[Shown]) -> Self {
        let programs = objects.iter().filter_map(|shown| match &shown.object {
            Object::Client(client) => Some((client.client, client.program.clone())),
            _ => None,
        });
        Self(programs.collect())
    }

    /// A client's number and its program, where it is known.
    pub fn owner(&self, client: Option<ClientId>) -> String {
        let Some(client) = client else {
            return "-".to_owned();
        };
        match self.0.get(&client) {
            Some(program) if !program.is_empty() => format!("{client} ({program})"),
            _ => client.to_string(),
        }
    }
}

/// An object, and the interface of its device.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The interface's name; none of what is of all devices.
    pub interface: Option<String>,
    pub object: Object,
}

/// An object as JSON: its fields under their names, and `interface`.
pub fn json(shown: &Shown) -> Value {
    let mut value = fields(&shown.object);
    if let (Some(fields), Some(interface)) = (value.as_object_mut(), &shown.interface) {
        fields.insert("interface".to_owned(), interface.clone().into());
    }
    value
}

fn fields(object: &Object) -> Value {
    let value = match object {
        Object::Client(one) => serde_json::to_value(one),
        Object::Connection(one) => serde_json::to_value(one),
        Object::QueuePair(one) => serde_json::to_value(one),
        Object::CompletionQueue(one) => serde_json::to_value(one),
        Object::Region(one) => serde_json::to_value(one),
        Object::Listener(one) => serde_json::to_value(one),
        Object::Limit(one) => serde_json::to_value(one),
    };
    // Numbers, text and lists of them: there is nothing that JSON can't have.
    value.unwrap_or(Value::Null)
}

/// The number by which an object is named on the command line.
pub fn number(object: &Object) -> Option<u32> {
    match object {
        Object::Client(one) => Some(one.client.0),
        Object::Connection(one) => Some(one.connection),
        Object::QueuePair(one) => Some(one.qp.0),
        Object::CompletionQueue(one) => Some(one.cq.0),
        Object::Region(one) => Some(one.index),
        Object::Listener(one) => Some(one.listener.0),
        Object::Limit(_) => None,
    }
}

/// Whose an object is; nobody's is no client's, and so is a limit.
pub fn owner(object: &Object) -> Option<ClientId> {
    match object {
        Object::Client(one) => Some(one.client),
        Object::Connection(one) => one.client,
        Object::QueuePair(one) => Some(one.client),
        Object::CompletionQueue(one) => Some(one.client),
        Object::Region(one) => Some(one.client),
        Object::Listener(one) => Some(one.client),
        Object::Limit(_) => None,
    }
}

/// Objects of one kind as a table. Their interface is a column of its own where there are `several`.
pub fn table(kind: Kind, objects: &[Shown], programs: &Programs, several: bool) -> Table {
    let mut columns = columns(kind).to_vec();
    // Limits are of all devices together.
    let of_devices = several && kind != Kind::Limits;
    columns.extend(of_devices.then_some("interface"));
    let mut table = Table::new(&columns);
    for Shown { interface, object } in objects {
        let mut row = row(object, programs);
        row.extend(of_devices.then(|| maybe(interface.as_ref())));
        table.push(row);
    }
    table
}

fn columns(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Clients => &[
            "client", "pid", "uid", "gid", "program", "QPs", "regions", "bytes", "refused",
        ],
        Kind::Connections => &[
            "no.",
            "local",
            "remote",
            "stage",
            "client",
            "QP",
            "TCP",
            "RTT us",
            "cwnd",
            "in flight",
            "bytes in",
            "bytes out",
            "sent again",
            "out of order",
        ],
        Kind::QueuePairs => &[
            "QP",
            "state",
            "PD",
            "send CQ",
            "recv CQ",
            "SRQ",
            "client",
            "local",
            "remote",
            "held bytes",
        ],
        Kind::CompletionQueues => &["CQ", "entries", "users", "client"],
        Kind::Regions => &[
            "STag index",
            "kind",
            "memory",
            "state",
            "PD",
            "rights",
            "bytes",
            "QP",
            "client",
        ],
        Kind::Listeners => &["listener", "over", "local", "client"],
        Kind::Limits => &["scope", "limit", "held", "most"],
    }
}

/// Of TCP, which most have, only what it is in.
fn state(connection: &ConnectionInfo) -> String {
    let below = match (connection.transport, connection.udp_port) {
        (Transport::Tcp, _) => return connection.state.clone(),
        (Transport::Sctp, None) => "SCTP",
        (Transport::Sctp, Some(_)) => "SCTP/UDP",
    };
    format!("{below} {}", connection.state)
}

fn row(object: &Object, programs: &Programs) -> Vec<String> {
    match object {
        Object::Client(one) => {
            let held = |name: &str, shown: fn(u64) -> String| {
                let found = one.holds.iter().find(|holding| holding.name == name);
                found.map_or_else(dash, |holding| {
                    format!("{}/{}", shown(holding.held), shown(holding.limit))
                })
            };
            let count = |number: u64| number.to_string();
            vec![
                one.client.to_string(),
                one.pid.to_string(),
                one.uid.to_string(),
                one.gid.to_string(),
                one.program.clone(),
                held("queue_pairs", count),
                held("regions", count),
                held("registered_bytes", size::show),
                one.refused.to_string(),
            ]
        }
        Object::Connection(one) => vec![
            one.connection.to_string(),
            one.local.to_string(),
            one.remote.to_string(),
            one.stage.name().to_owned(),
            programs.owner(one.client),
            maybe(one.qp),
            state(one),
            maybe(one.rtt_us),
            one.cwnd.to_string(),
            one.in_flight.to_string(),
            one.bytes_in.to_string(),
            one.bytes_out.to_string(),
            one.retransmits.to_string(),
            one.bytes_out_of_order.to_string(),
        ],
        Object::QueuePair(one) => vec![
            one.qp.to_string(),
            format!("{:?}", one.state),
            one.pd.to_string(),
            one.send_cq.to_string(),
            one.recv_cq.to_string(),
            maybe(one.srq),
            programs.owner(Some(one.client)),
            maybe(one.connection.map(|(local, _)| local)),
            maybe(one.connection.map(|(_, remote)| remote)),
            maybe(one.held),
        ],
        Object::CompletionQueue(one) => vec![
            one.cq.to_string(),
            one.depth.to_string(),
            one.users.to_string(),
            programs.owner(Some(one.client)),
        ],
        Object::Region(one) => vec![
            format!("0x{:06x}", one.index),
            if one.window { "window" } else { "region" }.to_owned(),
            one.memory.name().to_owned(),
            match (one.window, one.valid) {
                (_, true) => "valid",
                (true, false) => "unbound",
                (false, false) => "invalidated",
            }
            .to_owned(),
            one.pd.to_string(),
            rights(one.access),
            one.bytes.to_string(),
            maybe(one.qp),
            programs.owner(Some(one.client)),
        ],
        Object::Listener(one) => vec![
            one.listener.to_string(),
            one.transport.to_string(),
            one.local.to_string(),
            programs.owner(Some(one.client)),
        ],
        Object::Limit(one) => vec![
            match one.scope {
                Scope::Device => "device",
                Scope::User => "user",
                Scope::Client => "client",
                Scope::Object => "object",
            }
            .to_owned(),
            one.name.clone(),
            maybe(one.held),
            one.limit.to_string(),
        ],
    }
}

/// `lw`, `rr`, `rw`, `ra`: local write, remote read, remote write, remote atomic.
fn rights(access: Access) -> String {
    let rights = [
        (access.contains(Access::LOCAL_WRITE), "lw"),
        (access.contains(Access::REMOTE_READ), "rr"),
        (access.contains(Access::REMOTE_WRITE), "rw"),
        (access.contains(Access::REMOTE_ATOMIC), "ra"),
    ];
    let given: Vec<_> = rights
        .into_iter()
        .filter_map(|(given, name)| given.then_some(name))
        .collect();
    if given.is_empty() {
        dash()
    } else {
        given.join(",")
    }
}

fn maybe(value: Option<impl ToString>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests;
