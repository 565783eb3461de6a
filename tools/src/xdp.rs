//! The XDP mode that a tool uses on its interface.

use clap::ValueEnum;
use rnic::embedded::XdpMode;
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

/// Which XDP mode a device in this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceMode {
    /// Super-packets on a veth or tap with one queue and tso on, else native where the driver has it, else generic
    Auto,
    /// In the driver
    Native,
    /// In the kernel, for any driver
    Generic,
    /// In the kernel, with packets of up to 64 KiB (Linux 6.9)
    SuperPackets,
}

impl From<DeviceMode> for XdpMode {
    fn from(mode: DeviceMode) -> Self {
        match mode {
            DeviceMode::Auto => Self::Auto,
            DeviceMode::Native => Self::Native,
            DeviceMode::Generic => Self::Generic,
            DeviceMode::SuperPackets => Self::SuperPackets,
        }
    }
}
