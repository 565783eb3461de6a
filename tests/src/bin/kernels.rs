//! The RNIC on the kernels of Debian, in a virtual machine: `scripts/kernels` starts it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use rnic_tests::kernels::{self, Table};
use rnic_tests::peer::PeerKernel;

/// Runs the daemon inside a virtual machine with each kernel, over virtio-net and over a veth, against a
/// daemon on this host, another in the machine, and siw there. Prints a table in Markdown.
#[derive(Debug, Parser)]
struct Cli {
    /// Whose kernel; all of them when none is named.
    #[arg(long = "kernel", value_enum)]
    kernels: Vec<Kernel>,
}

/// The kernels there are images of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kernel {
    /// This Debian release's.
    Stable,
    /// Its backports'.
    Backports,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let kernels = match cli.kernels.as_slice() {
        [] => Kernel::value_variants(),
        some => some,
    };
    let mut table = Table::default();
    for kernel in kernels {
        let kernel = match kernel {
            Kernel::Stable => PeerKernel::Stable,
            Kernel::Backports => PeerKernel::Backports,
        };
        kernels::run(kernel, &mut table);
    }
    print!("{table}");
    if table.is_as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
