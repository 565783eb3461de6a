//! In which mode the steering program runs, and the order in which modes are tried.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use crate::error::SteeringError;
use crate::features::{Feature, FeatureState, Features};
use crate::load::{Loadable, Variant};
use crate::sys::{self, XdpFlag};

/// Which modes may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModePreference {
    /// The driver's own XDP, or the kernel's generic one when the driver has none that fits.
    #[default]
    NativeThenGeneric,
    /// The driver's own, or an error.
    NativeOnly,
    GenericOnly,
    /// The same, for packets of several buffers, or an error.
    GenericSeveralBuffers,
}

/// The mode that a steering program runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's receive path, after the driver made an skb. Slower on hardware, possible
    /// on every interface.
    Generic,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }

    const fn flag(self) -> XdpFlag {
        match self {
            Mode::Native => XdpFlag::Native,
            Mode::Generic => XdpFlag::Generic,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ModePreference {
    /// What to try, in this order.
    const fn attempts(self) -> &'static [(Mode, Variant)] {
        const ALL: [(Mode, Variant); 4] = [
            (Mode::Native, Variant::Frags),
            (Mode::Native, Variant::Plain),
            (Mode::Generic, Variant::Frags),
            (Mode::Generic, Variant::Plain),
        ];
        match self {
            ModePreference::NativeThenGeneric => &ALL,
            ModePreference::NativeOnly => ALL.split_at(2).0,
            ModePreference::GenericOnly => ALL.split_at(2).1,
            ModePreference::GenericSeveralBuffers => ALL.split_at(2).1.split_at(1).0,
        }
    }
}

/// Attaches the program to an interface, which has these devices, in the first way that the kernel takes for all of
/// them. The links that are returned keep it attached.
pub(crate) fn attach(
    program: &mut impl Loadable,
    interface: &str,
    devices: &[&str],
    preference: ModePreference,
) -> Result<(Vec<OwnedFd>, Mode), SteeringError> {
    let indexes = indexes(devices)?;
    // The first error of each mode says why that mode is not possible; the plain variant after
    // the one with frags can only be refused for less.
    let mut refused: Option<(Mode, SteeringError)> = None;
    for &(mode, variant) in preference.attempts() {
        let result = program.load(variant).and_then(|fd| {
            let attached = devices.iter().zip(&indexes).map(|(device, index)| {
                sys::attach_xdp(fd, *index, mode.flag())
                    .map_err(|error| attach_error(device, mode, error))
            });
            attached.collect::<Result<Vec<_>, _>>()
        });
        match result {
            Ok(links) => {
                match &refused {
                    None => log::info!("XDP on {interface}: {mode} mode"),
                    Some((of, why)) if *of == mode => log::info!(
                        "XDP on {interface}: {mode} mode, without frames of several buffers, \
                         because: {why}"
                    ),
                    Some((_, why)) => {
                        log::warn!("XDP on {interface}: {mode} mode, because: {why}");
                    }
                }
                return Ok((links, mode));
            }
            Err(error) if !another_way_may_do(&error) => return Err(error),
            Err(error) => {
                log::debug!("XDP on {interface}, {mode} mode, {variant:?}: {error}");
                if refused.as_ref().is_none_or(|(of, _)| *of != mode) {
                    refused = Some((mode, error));
                }
            }
        }
    }
    let (_, error) = refused.expect("every preference has attempts");
    Err(error)
}

/// The kernel's numbers of these interfaces, in the calling thread's network namespace.
pub(crate) fn indexes(interfaces: &[&str]) -> Result<Vec<u32>, SteeringError> {
    let index = |name: &&str| {
        sys::interface_index(name)
            .map_err(|error| SteeringError::kernel(name, "find the interface", error))
    };
    interfaces.iter().map(index).collect()
}

/// Whether the error is about the mode or variant, not about the interface or our rights.
fn another_way_may_do(error: &SteeringError) -> bool {
    matches!(
        error,
        SteeringError::NoXdp { .. }
            | SteeringError::TooFewQueues { .. }
            | SteeringError::MtuTooLarge { .. }
            | SteeringError::Load { .. }
            | SteeringError::Kernel { .. }
    )
}

fn attach_error(interface: &str, mode: Mode, error: io::Error) -> SteeringError {
    let name = interface.to_owned();
    let no_xdp = |advice| SteeringError::NoXdp {
        interface: interface.to_owned(),
        mode: mode.name(),
        advice,
    };
    match error.raw_os_error() {
        // Drivers that join frames refuse with either.
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Mode::Native && joins(interface) => {
            no_xdp(format!(
                "it joins received frames (LRO or hardware GRO), with which drivers refuse XDP: \
                 `ethtool -K {interface} lro off rx-gro-hw off` first, or where that is fixed, \
                 as in a virtual machine, the same on its host"
            ))
        }
        Some(libc::EOPNOTSUPP) => no_xdp(String::from(match mode {
            Mode::Native => "the driver has none: use generic mode",
            Mode::Generic => "use another interface, or a veth or bridge port in front of it",
        })),
        Some(libc::EBUSY | libc::EEXIST) => SteeringError::Occupied { interface: name },
        Some(libc::ENOSPC) => SteeringError::TooFewQueues { interface: name },
        Some(libc::ERANGE) => SteeringError::MtuTooLarge { interface: name },
        _ => SteeringError::kernel(interface, "attach the steering program", error),
    }
}

/// Whether an interface's driver or adapter joins received frames.
fn joins(interface: &str) -> bool {
    // One that can't be asked has neither.
    Features::of(interface).is_ok_and(|features| {
        [Feature::Lro, Feature::GroHw]
            .into_iter()
            .any(|feature| features.state(feature) != FeatureState::Off)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::driver::{Driver, INTERFACE, play};

    /// Drivers refuse XDP with the same errors when they join frames: then the operator is told what to switch off.
    #[test]
    fn a_refusal_of_a_driver_that_joins_frames_says_so() {
        for (lro, gro_hw) in [(true, false), (false, true), (false, false)] {
            play(Driver {
                features: vec![("rx-gro", true), ("rx-lro", lro), ("rx-gro-hw", gro_hw)],
                ..Driver::default()
            });
            for (error, mode) in [
                (libc::EOPNOTSUPP, Mode::Native),
                (libc::EINVAL, Mode::Native),
                (libc::EOPNOTSUPP, Mode::Generic),
            ] {
                let error = io::Error::from_raw_os_error(error);
                let told = attach_error(INTERFACE, mode, error).to_string();
                let says_so = told.contains("ethtool -K played lro off rx-gro-hw off");
                let expected = (lro || gro_hw) && mode == Mode::Native;
                assert_eq!(says_so, expected, "{lro} {gro_hw} {mode:?}: {told}");
            }
        }
    }
}
