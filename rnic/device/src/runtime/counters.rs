//! The counters of all shards of a device as one list: they are counted by each for itself, and summed when somebody
//! asks.

/// What each shard has of the same thing: not to be summed.
const SHARED: [&str; 1] = ["regions"];

/// The number of a shard's port among those of all shards: its queue's, for the queues are dealt out in turn.
pub(crate) fn port(shards: usize, shard: usize, port: usize) -> usize {
    port * shards + shard
}

/// The sum of what each shard counted, in the order in which the first one tells it.
pub(crate) fn sum(of_shards: Vec<Vec<(String, u64)>>) -> Vec<(String, u64)> {
    let shards = of_shards.len();
    let mut all: Vec<(String, u64)> = Vec::new();
    let mut ports = Vec::new();
    for (shard, counters) in of_shards.into_iter().enumerate() {
        let (mut counters, of_ports): (Vec<_>, Vec<_>) = counters
            .into_iter()
            .partition(|(name, _)| port_counter(name).is_none());
        ports.extend(of_ports.into_iter().filter_map(|(name, value)| {
            let (own, name) = port_counter(&name)?;
            Some((port(shards, shard, own), name.to_owned(), value))
        }));
        if shard == 0 {
            all.append(&mut counters);
            continue;
        }
        for ((name, sum), (_, value)) in all.iter_mut().zip(counters) {
            if !SHARED.contains(&name.as_str()) {
                *sum += value;
            }
        }
    }
    ports.sort_by_key(|(port, ..)| *port);
    all.extend(
        ports
            .into_iter()
            .map(|(port, name, value)| (format!("port{port}_{name}"), value)),
    );
    all
}

/// The number and the counter's own name, of a name that is of a port.
fn port_counter(name: &str) -> Option<(usize, &str)> {
    let (port, name) = name.strip_prefix("port")?.split_once('_')?;
    Some((port.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(first: u64, ports: u64) -> Vec<(String, u64)> {
        let mut all = vec![
            ("established".to_owned(), first),
            ("regions".to_owned(), 5),
            ("port_errors".to_owned(), 1),
        ];
        for port in 0..ports {
            all.push((format!("port{port}_received"), 10 * first + port));
            all.push((format!("port{port}_sent"), 0));
        }
        all
    }

    #[test]
    fn counters_are_summed_and_ports_numbered_as_their_queues() {
        let all = sum(vec![counters(1, 2), counters(2, 1)]);
        let found: Vec<_> = all.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(
            found,
            [
                ("established", 3),
                ("regions", 5),
                ("port_errors", 2),
                ("port0_received", 10),
                ("port0_sent", 0),
                ("port1_received", 20),
                ("port1_sent", 0),
                ("port2_received", 11),
                ("port2_sent", 0),
            ]
        );
    }

    #[test]
    fn one_shards_counters_are_what_it_tells() {
        assert_eq!(sum(vec![counters(3, 2)]), counters(3, 2));
    }
}
