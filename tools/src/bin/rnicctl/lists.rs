//! Lists of the RNIC's objects.

use clap::Args;
use rnic::ClientId;
use rnic::admin::Kind;
use rnic_tools::ctl::show::{self, Programs, Shown};
use rnic_tools::endpoint::ToolError;
use rnic_tools::source::DaemonSource;
use serde_json::Value;

use crate::Style;
use crate::devices::Devices;
use crate::watch::{Again, answers};

/// Which objects to show.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Only this one, with all that is known of it
    #[arg(value_name = "NUMBER", value_parser = number)]
    number: Option<u32>,
    /// Only those of this client
    #[arg(long, value_name = "NUMBER")]
    client: Option<u32>,
    #[command(flatten)]
    again: Again,
}

impl Which {
    /// All of them.
    pub(crate) fn all(again: &Again) -> Self {
        Self {
            number: None,
            client: None,
            again: *again,
        }
    }
}

pub(crate) fn answer(
    daemon_source: &DaemonSource,
    kind: Kind,
    which: &Which,
    style: Style,
) -> Result<(), ToolError> {
    answers(which.again, style, &mut |devices: Option<Devices<'_>>| {
        let devices = match devices {
            Some(devices) => devices,
            None => Devices::open(daemon_source)?,
        };
        Ok((Some(list(&devices, kind, which, style)?), devices))
    })
}

fn list(
    devices: &Devices<'_>,
    kind: Kind,
    which: &Which,
    style: Style,
) -> Result<String, ToolError> {
    let mut objects = devices.objects(kind)?;
    if let Some(client) = which.client {
        objects.retain(|shown| show::owner(&shown.object) == Some(ClientId(client)));
    }
    if let Some(wanted) = which.number {
        objects.retain(|shown| show::number(&shown.object) == Some(wanted));
        let shown = the_only(&objects, wanted)?;
        if !style.json {
            let mut text = String::new();
            details(&show::json(shown), "", &mut text);
            return Ok(text);
        }
    }
    if style.json {
        let list: Vec<Value> = objects.iter().map(show::json).collect();
        return Ok(format!("{}\n", Value::from(list)));
    }
    let programs = match kind {
        Kind::Clients => Programs::of(&objects),
        _ => devices.programs()?,
    };
    let table = show::table(kind, &objects, &programs, devices.several());
    Ok(table.text(style.width()))
}

/// Each device counts its connections for itself.
pub(crate) fn the_only(found: &[Shown], wanted: u32) -> Result<&Shown, ToolError> {
    match found {
        [one] => Ok(one),
        [] => Err(ToolError::Usage(format!(
            "there is no {wanted}, or it is not yours to see"
        ))),
        several => {
            let interfaces = several.iter().filter_map(|one| one.interface.clone());
            let interfaces: Vec<String> = interfaces.collect();
            Err(ToolError::Usage(format!(
                "there is a {wanted} on each of the interfaces {}: say which with --device",
                interfaces.join(", ")
            )))
        }
    }
}

/// All fields of an object, one a line.
fn details(value: &Value, before: &str, text: &mut String) {
    let mut line = |line: String| *text += &format!("{before}{line}\n");
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(_) | Value::Array(_) => {
                        *text += &format!("{before}{name}\n");
                        details(value, &format!("{before}  "), text);
                    }
                    Value::String(value) => *text += &format!("{before}{name:22} {value}\n"),
                    Value::Null => *text += &format!("{before}{name:22} -\n"),
                    other => *text += &format!("{before}{name:22} {other}\n"),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| details(value, before, text)),
        Value::String(value) => line(value.clone()),
        other => line(other.to_string()),
    }
}

/// Decimal, or hexadecimal as regions are shown.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "give a number as the list shows it".to_owned())
}
