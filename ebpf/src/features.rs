//! What a driver and the kernel do to an interface's frames by themselves: the features that `ethtool -k`
//! lists.

use std::io;

use crate::sys;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The driver joins received segments, for good (LRO).
    Lro,
    /// The network adapter joins received segments (hardware GRO).
    GroHw,
    /// The kernel joins received segments (GRO).
    Gro,
    /// The adapter is given unsplit segments to send, over IPv4 (TSO).
    Tso,
    /// The same over IPv6.
    Tso6,
}

impl Feature {
    const fn name(self) -> &'static str {
        match self {
            Feature::Lro => "rx-lro",
            Feature::GroHw => "rx-gro-hw",
            Feature::Gro => "rx-gro",
            Feature::Tso => "tx-tcp-segmentation",
            Feature::Tso6 => "tx-tcp6-segmentation",
        }
    }

    /// What `ethtool -K` takes for it.
    pub const fn option(self) -> &'static str {
        match self {
            Feature::Lro => "lro",
            Feature::GroHw => "rx-gro-hw",
            Feature::Gro => "gro",
            Feature::Tso | Feature::Tso6 => "tso",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureState {
    /// It is off, or the interface has none.
    Off,
    /// It is on, and may be switched off.
    On,
    /// It is on for good: neither `ethtool -K` nor the kernel can switch it off.
    Fixed,
}

/// The features of an interface at one moment.
#[derive(Debug, Clone)]
pub struct Features {
    /// In the kernel's order.
    names: Vec<String>,
    words: Vec<sys::FeatureWord>,
}

impl Features {
    /// Asks the kernel, in the calling thread's network namespace. That takes no privilege.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of(interface: &str) -> io::Result<Self> {
        let names = sys::feature_names(interface)?;
        let words = sys::features(interface, names.len())?;
        Ok(Self { names, words })
    }

    pub fn state(&self, feature: Feature) -> FeatureState {
        let Some(number) = self.names.iter().position(|name| name == feature.name()) else {
            return FeatureState::Off;
        };
        let (word, bit) = (self.words.get(number / 32), 1 << (number % 32));
        match word {
            Some(word) if word.active & bit != 0 && word.available & bit == 0 => {
                FeatureState::Fixed
            }
            Some(word) if word.active & bit != 0 => FeatureState::On,
            _ => FeatureState::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::FeatureWord;

    #[test]
    fn a_feature_that_is_on_and_may_not_be_changed_is_fixed() {
        let mut names: Vec<String> = (0..33).map(|number| format!("other-{number}")).collect();
        names.extend(["rx-lro", "rx-gro-hw", "rx-gro"].map(String::from));
        let word = |available, active| FeatureWord { available, active };
        // Numbers 33 to 35 are the second word's bits 1 to 3.
        let words = vec![word(0, u32::MAX), word(0b0010, 0b0110)];
        let features = Features { names, words };
        assert_eq!(features.state(Feature::Lro), FeatureState::On);
        assert_eq!(features.state(Feature::GroHw), FeatureState::Fixed);
        assert_eq!(features.state(Feature::Gro), FeatureState::Off);
        assert_eq!(features.state(Feature::Tso), FeatureState::Off, "unknown");
    }
}
