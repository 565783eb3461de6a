//! Settings as they were given: on the command line, or in the file, which has the same names.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use rnic_device::{Configured, DeviceConfig, Kind, Setting, Value};

use super::declared::DaemonConfig;

/// Values by the names of their settings. What is not here has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(crate) fn insert(&mut self, name: &'static str, value: Value) {
        self.0.insert(name, value);
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// These, and where they say nothing `below`.
    pub(crate) fn over(self, below: Self) -> Self {
        let mut all = below.0;
        all.extend(self.0);
        Self(all)
    }

    /// Sets them in the order of the declarations.
    pub(crate) fn apply<C: Configured>(&self, config: &mut C) {
        for setting in C::SETTINGS {
            if let Some(value) = self.0.get(setting.name) {
                // A value is taken only when it could be set.
                let set = (setting.set)(config, value);
                debug_assert_eq!(set, Ok(()), "{}", setting.name);
            }
        }
    }
}

/// What somebody said of the daemon's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Given {
    pub(crate) interface: Vec<String>,
    pub(crate) own: Values,
    pub(crate) link: Values,
}

impl Given {
    /// What this says, and where it says nothing what `below` says.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            interface: match self.interface.is_empty() {
                true => below.interface,
                false => self.interface,
            },
            own: self.own.over(below.own),
            link: self.link.over(below.link),
        }
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let interface = Arg::new("interface")
            .long("interface")
            .value_name("NAME")
            .action(ArgAction::Append)
            .help("Interface to open, in this network namespace; may be given several times [default: those of the configuration file]");
        let command = command.arg(interface);
        let command = command.args(DaemonConfig::SETTINGS.iter().map(argument));
        let without_interface = ArgGroup::new("without_interface").args(["loopback", "udp"]);
        command
            .group(without_interface)
            .args(DeviceConfig::SETTINGS.iter().map(argument))
            .mut_arg("no_loopback", |it| {
                it.conflicts_with_all(["loopback", "udp"])
            })
            .mut_arg("udp", |it| {
                it.conflicts_with("loopback")
                    .num_args(0..=1)
                    .default_missing_value("")
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let interface = matches.get_many::<String>("interface");
        Ok(Self {
            interface: interface.into_iter().flatten().cloned().collect(),
            own: values::<DaemonConfig>(matches),
            link: values::<DeviceConfig>(matches),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?.over(std::mem::take(self));
        Ok(())
    }
}

fn argument<C: Configured>(setting: &'static Setting<C>) -> Arg {
    let argument = Arg::new(setting.name).long(setting.name.replace('_', "-"));
    match setting.kind {
        Kind::Flag => argument.action(ArgAction::SetTrue).help(setting.help),
        _ => argument
            .value_name(setting.unit)
            .value_parser(move |text: &str| setting.read(text))
            .help(format!("{} [default: {}]", setting.help, setting.default())),
    }
}

fn values<C: Configured>(matches: &ArgMatches) -> Values {
    let mut values = Values::default();
    for setting in C::SETTINGS {
        let value = match setting.kind {
            Kind::Flag => matches.get_flag(setting.name).then_some(Value::Flag(true)),
            _ => matches.get_one::<Value>(setting.name).cloned(),
        };
        if let Some(value) = value {
            values.insert(setting.name, value);
        }
    }
    values
}

#[cfg(test)]
impl Values {
    /// Settings of `C` as the command line gives them; a flag by `true` or `false`.
    pub(crate) fn of<C: Configured>(given: &[(&str, &str)]) -> Self {
        let mut values = Self::default();
        for (name, text) in given {
            let known = C::SETTINGS.iter().find(|setting| setting.name == *name);
            let setting = known.unwrap_or_else(|| panic!("no setting {name}"));
            let value = match setting.kind {
                Kind::Flag => Value::Flag(text.parse().unwrap()),
                _ => setting.read(text).unwrap(),
            };
            values.insert(setting.name, value);
        }
        values
    }
}
