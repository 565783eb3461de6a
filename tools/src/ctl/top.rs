//! How much clients and connections move a second, from two looks at the RNIC's objects.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use rnic::ClientId;
use rnic::admin::{ConnectionInfo, Object};
use serde::Serialize;

use super::show::{Programs, Shown};
use super::table::Table;
use crate::size;

/// What is measured of a client or a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Payload bytes received a second.
    #[serde(rename = "bytes_in_per_second")]
    pub bytes_in: f64,
    /// Payload bytes sent a second.
    #[serde(rename = "bytes_out_per_second")]
    pub bytes_out: f64,
    /// Segments sent again a second.
    #[serde(rename = "retransmits_per_second")]
    pub retransmits: f64,
}

/// A client and its rates, which are the sums of those of its connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientRates {
    pub client: ClientId,
    pub interface: Option<String>,
    pub pid: u32,
    pub program: String,
    pub connections: usize,
    #[serde(flatten)]
    pub rates: Rates,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectionRates {
    pub connection: u32,
    pub interface: Option<String>,
    pub client: Option<ClientId>,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Smoothed round trip time in microseconds.
    pub rtt_us: Option<u64>,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Clients and connections, those that move most first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// What is between the two looks.
    pub seconds: f64,
    pub clients: Vec<ClientRates>,
    /// All connections of the second look.
    pub connections: Vec<ConnectionRates>,
}

impl Activity {
    /// From the connections of two looks, and the clients of the second. A connection that the first look did
    /// not have began between them.
    pub fn between(before: &[Shown], now: &[Shown], clients: &[Shown], time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-9);
        let old: HashMap<_, _> = connections(before)
            .map(|(interface, one)| (key(interface, one), one))
            .collect();
        let rates = |interface: Option<&str>, one: &ConnectionInfo| {
            let old = old.get(&key(interface, one));
            let grown = |count: fn(&ConnectionInfo) -> u64| {
                let before = old.map_or(0, |old| count(old));
                count(one).saturating_sub(before) as f64 / seconds
            };
            Rates {
                bytes_in: grown(|one| one.bytes_in),
                bytes_out: grown(|one| one.bytes_out),
                retransmits: grown(|one| one.retransmits),
            }
        };
        let mut connections: Vec<_> = connections(now)
            .map(|(interface, one)| ConnectionRates {
                connection: one.connection,
                interface: interface.map(str::to_owned),
                client: one.client,
                local: one.local,
                remote: one.remote,
                rtt_us: one.rtt_us,
                rates: rates(interface, one),
            })
            .collect();
        connections.sort_by(|a, b| b.rates.moved().total_cmp(&a.rates.moved()));
        Self {
            seconds,
            clients: of_clients(&connections, clients),
            connections,
        }
    }

    /// A line for the sums; then the busiest clients, at most so many; then the connections. `several` says that
    /// there are several interfaces; `width` is that of the output.
    pub fn text(
        &self,
        programs: &Programs,
        several: bool,
        width: Option<usize>,
        most_clients: usize,
    ) -> String {
        let sum = self.connections.iter().map(|one| one.rates).sum::<Rates>();
        let [bytes_in, bytes_out, again] = sum.cells();
        format!(
            "{} clients, {} connections: in {bytes_in}/s, out {bytes_out}/s, sent again {again}/s\n\n{}\n{}",
            self.clients.len(),
            self.connections.len(),
            self.clients(several, most_clients).text(width),
            self.connections(programs, several).text(width)
        )
    }

    fn clients(&self, several: bool, most: usize) -> Table {
        let columns = ["client", "program", "pid", "connections"];
        let mut table = table(&columns, several);
        for one in self.clients.iter().take(most) {
            let cells = [
                one.client.to_string(),
                one.program.clone(),
                one.pid.to_string(),
                one.connections.to_string(),
            ];
            push(&mut table, cells, one.rates, several, &one.interface);
        }
        table
    }

    fn connections(&self, programs: &Programs, several: bool) -> Table {
        let mut table = table(&["no.", "client", "remote", "RTT us"], several);
        for one in &self.connections {
            let rtt = one
                .rtt_us
                .map_or_else(|| "-".to_owned(), |rtt| rtt.to_string());
            let cells = [
                one.connection.to_string(),
                programs.owner(one.client),
                one.remote.to_string(),
                rtt,
            ];
            push(&mut table, cells, one.rates, several, &one.interface);
        }
        table
    }
}

impl Rates {
    fn moved(&self) -> f64 {
        self.bytes_in + self.bytes_out
    }

    fn cells(&self) -> [String; 3] {
        let bytes = |rate: f64| size::show(rate.round() as u64);
        let again = format!("{:.0}", self.retransmits);
        [bytes(self.bytes_in), bytes(self.bytes_out), again]
    }
}

impl std::iter::Sum for Rates {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            bytes_in: sum.bytes_in + one.bytes_in,
            bytes_out: sum.bytes_out + one.bytes_out,
            retransmits: sum.retransmits + one.retransmits,
        })
    }
}

/// What makes a connection the same as that of an earlier look.
fn key(
    interface: Option<&str>,
    one: &ConnectionInfo,
) -> (Option<String>, u32, SocketAddr, SocketAddr) {
    let interface = interface.map(str::to_owned);
    (interface, one.connection, one.local, one.remote)
}

fn connections(objects: &[Shown]) -> impl Iterator<Item = (Option<&str>, &ConnectionInfo)> {
    objects.iter().filter_map(|shown| match &shown.object {
        Object::Connection(one) => Some((shown.interface.as_deref(), one)),
        _ => None,
    })
}

fn of_clients(connections: &[ConnectionRates], clients: &[Shown]) -> Vec<ClientRates> {
    let mut sums: BTreeMap<ClientId, (usize, Rates)> = BTreeMap::new();
    for one in connections {
        if let Some(client) = one.client {
            let (count, sum) = sums.entry(client).or_default();
            *count += 1;
            *sum = [*sum, one.rates].into_iter().sum();
        }
    }
    let clients = clients.iter().filter_map(|shown| match &shown.object {
        Object::Client(one) => {
            let (connections, rates) = sums.get(&one.client).copied().unwrap_or_default();
            Some(ClientRates {
                client: one.client,
                interface: shown.interface.clone(),
                pid: one.pid,
                program: one.program.clone(),
                connections,
                rates,
            })
        }
        _ => None,
    });
    let mut clients: Vec<_> = clients.collect();
    clients.sort_by(|a, b| b.rates.moved().total_cmp(&a.rates.moved()));
    clients
}

fn table(columns: &[&'static str], several: bool) -> Table {
    let rates: &[&str] = &["in/s", "out/s", "again/s"];
    let interface: &[&str] = if several { &["interface"] } else { &[] };
    Table::new(&[columns, rates, interface].concat())
}

fn push(
    table: &mut Table,
    cells: [String; 4],
    rates: Rates,
    several: bool,
    interface: &Option<String>,
) {
    let mut row = Vec::from(cells);
    row.extend(rates.cells());
    row.extend(several.then(|| interface.clone().unwrap_or_default()));
    table.push(row);
}

#[cfg(test)]
mod tests;
