//! Allow-lists of peers: `allowed_peers`, and those of listeners (`[[listener]]`).

use rnic_device::{
    AllowList, ListenerAddress, ListenerPeers, ParseListenerAddressError, ParsePrefixError,
};

use super::reader::{At, Reader};

/// The keys of a listener's table.
const KEYS: [&str; 2] = ["address", "allowed_peers"];

/// `allowed_peers`: a list of networks.
pub(super) fn allowed(reader: &mut Reader<'_>, at: &At<'_>) -> Option<AllowList> {
    let elements = reader.list(at)?;
    let network = |text: &str| {
        text.parse()
            .map_err(|error: ParsePrefixError| error.to_string())
    };
    let networks: Vec<_> = elements
        .iter()
        .map(|element| reader.parsed(element, network))
        .collect();
    let list = AllowList::new(networks.into_iter().collect::<Option<_>>()?);
    if list.is_none() {
        let message = format!(
            "`{}` has {} networks: give at most {}",
            at.key,
            elements.len(),
            AllowList::MAX
        );
        reader.fault(at.span(), message);
    }
    list
}

/// `[[listener]]`.
pub(super) fn listeners(reader: &mut Reader<'_>, at: &At<'_>) -> Vec<ListenerPeers> {
    let mut found: Vec<ListenerPeers> = Vec::new();
    for element in reader.list(at).unwrap_or_default() {
        let Some(one) = listener(reader, &element) else {
            continue;
        };
        if found.iter().any(|other| other.at == one.at) {
            let message = format!("listener {} is named twice", one.at);
            reader.fault(element.span(), message);
        }
        found.push(one);
    }
    if found.len() > ListenerPeers::MAX {
        let message = format!(
            "there are {} listeners: give at most {}",
            found.len(),
            ListenerPeers::MAX
        );
        reader.fault(at.span(), message);
    }
    found
}

fn listener(reader: &mut Reader<'_>, at: &At<'_>) -> Option<ListenerPeers> {
    let (mut address, mut list) = (None, None);
    // A value that has a fault was said all the same.
    let (mut has_address, mut has_list) = (false, false);
    for (key, value) in reader.table(at)? {
        let at = At::new(key, value);
        match at.key {
            "address" => {
                has_address = true;
                let parse = |text: &str| {
                    let found = text.parse::<ListenerAddress>();
                    found.map_err(|error: ParseListenerAddressError| error.to_string())
                };
                address = reader.parsed(&at, parse);
            }
            "allowed_peers" => {
                has_list = true;
                list = allowed(reader, &at);
            }
            _ => reader.unknown(&at, &KEYS),
        }
    }
    for (said, key) in [(has_address, KEYS[0]), (has_list, KEYS[1])] {
        if !said {
            reader.fault(at.span(), format!("a listener without its `{key}`"));
        }
    }
    Some(ListenerPeers {
        at: address?,
        allowed: list?,
    })
}
