//! The XDP mode that a tool uses on its interface.

use clap::ValueEnum;
use rnic::XdpMode;
use rnic_steering::ModePreference;

/// Which XDP mode to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Native where the driver has it, else generic
    Auto,
    /// In the driver
    Native,
    /// In the kernel, for any driver
    Generic,
}

impl From<Mode> for ModePreference {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::NativeThenGeneric,
            Mode::Native => Self::NativeOnly,
            Mode::Generic => Self::GenericOnly,
        }
    }
}

impl From<Mode> for XdpMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Native => Self::Native,
            Mode::Generic => Self::Generic,
        }
    }
}
