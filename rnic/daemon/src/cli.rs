//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::settings::Given;

/// A software RNIC (iWARP) on network interfaces, for local clients.
#[derive(Debug, Parser)]
#[command(version = env!("RNIC_VERSION"), about)]
pub(crate) struct Cli {
    /// Read settings and limits from this file. Options of the command line override it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,

    /// Check the configuration, print the settings and limits that result, and exit. What would keep the
    /// daemon from starting here is printed too, a line for each thing: capabilities and locked memory, the
    /// socket, captures, metrics, the interfaces. Nothing is opened or made. With any such line the exit status is 1
    #[arg(long)]
    pub(crate) check: bool,

    /// Switch to this user, by name or number, before anything is opened, and keep only the
    /// capabilities that are needed. For a daemon started as root
    #[arg(long, value_name = "USER", value_parser = crate::names::account)]
    pub(crate) user: Option<crate::names::Account>,

    /// With --loopback or --udp: be the daemon of one program and what it starts, as rnic-run starts it. Its user may do
    /// everything, and is bounded by the host and the size of tables alone
    #[arg(long, requires = "without_interface", conflicts_with = "config")]
    pub(crate) private: bool,

    #[command(flatten)]
    pub(crate) given: Given,
}

#[cfg(test)]
mod tests;
