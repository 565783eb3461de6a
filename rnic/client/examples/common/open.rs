//! How the examples read their arguments and open their RNIC.

use std::net::SocketAddr;

use rnic::{Context, Daemon};

/// Any error; `Send`, so that threads can hand it on.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The program's arguments from its role on, and before it what to open.
pub fn arguments(roles: &[&str]) -> (Option<String>, Vec<String>) {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let first = arguments.first();
    let place = first.is_some_and(|first| !roles.contains(&first.as_str()));
    (place.then(|| arguments.remove(0)), arguments)
}

/// The RNIC that is named: a daemon's socket, or `embedded:INTERFACE` for one in this process, which
/// needs the daemon's rights and the feature `embedded`. Without a name it is that of the daemon that is
/// found.
pub fn open(place: Option<&str>) -> Result<Context, Failure> {
    let Some(place) = place else {
        return Ok(Context::open()?);
    };
    Ok(match place.strip_prefix("embedded:") {
        Some(interface) => embedded(interface)?,
        None => Daemon::at(place)?.open(None)?,
    })
}

#[cfg(feature = "embedded")]
fn embedded(interface: &str) -> Result<Context, Failure> {
    use rnic::embedded::{Device, DeviceConfig};

    Ok(Context::embedded(&Device::open(DeviceConfig::new(
        interface,
    ))?)?)
}

#[cfg(not(feature = "embedded"))]
fn embedded(interface: &str) -> Result<Context, Failure> {
    Err(
        format!("embedded:{interface} needs the feature `embedded`, without which this was built")
            .into(),
    )
}

/// The first address of a server; 18515 is the port if none is named.
pub fn server(text: &str) -> Result<SocketAddr, Failure> {
    Ok(rnic::address::peer_addresses(text)?[0])
}

/// Where to listen: without an address on all that the RNIC has.
pub fn local(text: &str) -> Result<SocketAddr, Failure> {
    Ok(rnic::address::local_addresses(text)?[0])
}
