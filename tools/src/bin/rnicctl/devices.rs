//! The devices of an RNIC, and what is known of each.

use rnic::admin::Kind;
use rnic::{Context, DeviceInfo};
use rnic_tools::ctl::show::{Programs, Shown};
use rnic_tools::endpoint::ToolError;
use rnic_tools::source::{DaemonSource, Interface};
use serde_json::{Value, json};

use crate::Style;
use crate::watch::{Again, answers};

/// Columns before a value of a device.
const NAME: usize = 13;

/// The devices that are asked, opened: all that are open, or the one that was named.
pub(crate) struct Devices<'a> {
    daemon_source: &'a DaemonSource,
    /// Each with the name of its interface.
    all: Vec<(String, Context)>,
}

impl<'a> Devices<'a> {
    pub(crate) fn open(daemon_source: &'a DaemonSource) -> Result<Self, ToolError> {
        let mut all = Vec::new();
        for name in daemon_source.devices()? {
            let context = daemon_source.open_device(&name)?;
            all.push((context.device_info()?.interface, context));
        }
        Ok(Self { daemon_source, all })
    }

    /// Whether there is more than one.
    pub(crate) fn several(&self) -> bool {
        self.all.len() > 1
    }

    /// The objects of one kind, one device after the other: this client shows among them.
    pub(crate) fn objects(&self, kind: Kind) -> Result<Vec<Shown>, ToolError> {
        let mut found = Vec::new();
        if kind == Kind::Limits {
            let limits = match self.all.first() {
                Some((_, context)) => context.inspect(kind)?,
                // Without an open device the RNIC says why.
                None => self.daemon_source.open_any()?.inspect(kind)?,
            };
            let limits = limits.into_iter();
            found.extend(limits.map(|object| Shown {
                interface: None,
                object,
            }));
            return Ok(found);
        }
        for (interface, context) in &self.all {
            let objects = context.inspect(kind)?.into_iter();
            found.extend(objects.map(|object| Shown {
                interface: Some(interface.clone()),
                object,
            }));
        }
        Ok(found)
    }

    /// The names of all clients' programs.
    pub(crate) fn programs(&self) -> Result<Programs, ToolError> {
        Ok(Programs::of(&self.objects(Kind::Clients)?))
    }

    /// All counters, of several devices each with its interface before the name.
    pub(crate) fn counters(&self) -> Result<Vec<(String, u64)>, ToolError> {
        let mut all = Vec::new();
        for (interface, context) in &self.all {
            let before = match self.several() {
                true => format!("{interface}:"),
                false => String::new(),
            };
            let found = context.counters()?.into_iter();
            all.extend(found.map(|(name, count)| (format!("{before}{name}"), count)));
        }
        Ok(all)
    }
}

/// The device that is named, or the first that is open. Without one the RNIC says why.
pub(crate) fn first(daemon_source: &DaemonSource) -> Result<Context, ToolError> {
    match daemon_source.devices()?.first() {
        Some(device) => daemon_source.open_device(device),
        None => daemon_source.open_any(),
    }
}

pub(crate) fn device(daemon_source: &DaemonSource, style: Style) -> Result<(), ToolError> {
    let device = first(daemon_source)?.device_info()?;
    if style.json {
        rnic_tools::outln!("{}", info(&device));
    } else {
        rnic_tools::out!("{}", told(&device, style.width()));
    }
    Ok(())
}

pub(crate) fn answer(
    daemon_source: &DaemonSource,
    again: &Again,
    style: Style,
) -> Result<(), ToolError> {
    answers(*again, style, &mut |_: Option<()>| {
        let interfaces = daemon_source.interfaces()?.into_iter();
        let text = match style.json {
            true => {
                let list: Result<Vec<Value>, _> =
                    interfaces.map(|one| value(daemon_source, one)).collect();
                format!("{}\n", Value::from(list?))
            }
            false => {
                let blocks: Result<Vec<String>, _> = interfaces
                    .map(|one| block(daemon_source, one, style.width()))
                    .collect();
                blocks?.join("\n")
            }
        };
        Ok((Some(text), ()))
    })
}

fn value(daemon_source: &DaemonSource, interface: Interface) -> Result<Value, ToolError> {
    Ok(match interface {
        Interface::Waiting { name, why } => json!({ "interface": name, "waits": why }),
        Interface::Open(name) => info(&daemon_source.open_device(&name)?.device_info()?),
    })
}

fn block(
    daemon_source: &DaemonSource,
    interface: Interface,
    width: Option<usize>,
) -> Result<String, ToolError> {
    Ok(match interface {
        Interface::Waiting { name, why } => {
            line("interface", &name, width) + &line("waits", &why, width)
        }
        Interface::Open(name) => told(&daemon_source.open_device(&name)?.device_info()?, width),
    })
}

fn info(device: &DeviceInfo) -> Value {
    json!({
        "interface": device.interface,
        "xdp_mode": device.xdp_mode,
        "addresses": device.addresses,
        "mtu": device.mtu,
        "queues": device.queues,
        "max_sge": device.max_sge,
        "max_inline": device.max_inline,
        "max_queue_depth": device.max_queue_depth,
    })
}

fn told(device: &DeviceInfo, width: Option<usize>) -> String {
    let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
    let lines = [
        ("interface", device.interface.clone()),
        ("XDP mode", device.xdp_mode.to_string()),
        ("addresses", addresses.join(", ")),
        ("MTU", format!("{} bytes", device.mtu)),
        ("RX queues", device.queues.to_string()),
        ("elements", format!("{} a work request", device.max_sge)),
        (
            "inline",
            format!("{} bytes a work request", device.max_inline),
        ),
        (
            "queue depth",
            format!("{} work requests", device.max_queue_depth),
        ),
    ];
    lines
        .map(|(name, value)| line(name, &value, width))
        .concat()
}

/// A name and its value, which goes on in further lines where the output has too few columns.
fn line(name: &str, value: &str, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(NAME));
    let mut lines = vec![String::new()];
    for word in value.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= room {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    let value = lines.join(&format!("\n{:NAME$}", ""));
    format!("{name:NAME$}{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_too_long_goes_on_below_itself() {
        assert_eq!(
            line("MTU", "1500 bytes", Some(23)),
            "MTU          1500 bytes\n"
        );
        let expected = "MTU          1500\n             bytes\n";
        assert_eq!(line("MTU", "1500 bytes", Some(22)), expected);
    }
}
