//! What becomes of packets that the host's IPsec policies select.

use rnic_net::IpsecPolicies;

/// Policies that the log names, and a check; of more there is the number.
const NAMED: usize = 8;

/// What the host's IPsec policies are for an RNIC, which has no ESP of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostIpsec {
    /// What they block or want protected is neither sent nor taken.
    #[default]
    Refuse,
    /// Nothing: frames go in clear. The log warns of it.
    Ignore,
}

/// What [`HostIpsec`] is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give refuse or ignore")]
pub struct ParseHostIpsecError;

impl std::str::FromStr for HostIpsec {
    type Err = ParseHostIpsecError;

    fn from_str(text: &str) -> Result<Self, ParseHostIpsecError> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "ignore" => Ok(Self::Ignore),
            _ => Err(ParseHostIpsecError),
        }
    }
}

impl std::fmt::Display for HostIpsec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::Ignore => "ignore",
        })
    }
}

impl HostIpsec {
    /// What these policies come to, for people; nothing where they forbid nothing.
    pub(crate) fn explain(self, interface: &str, policies: &IpsecPolicies) -> Option<String> {
        if policies.forbid_nothing() {
            return None;
        }
        let all = policies.forbidding().count();
        let named: Vec<_> = policies.forbidding().take(NAMED).collect();
        let more = match all - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join("; ");
        let what = match self {
            Self::Refuse => "what they select is neither sent nor taken (host_ipsec)",
            Self::Ignore => {
                "they are ignored, and what they select goes in clear (host_ipsec = \"ignore\")"
            }
        };
        Some(format!(
            "interface {interface}: the host's IPsec forbids clear traffic by {named}{more}: {what}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_and_what_they_come_to() {
        let blocks = IpsecPolicies::new(Vec::new(), [true, true]);
        let told = HostIpsec::Refuse.explain("eth0", &blocks).unwrap();
        for words in ["interface eth0", "`out block`", "`in block`", "neither"] {
            assert!(told.contains(words), "{told}");
        }
        let told = HostIpsec::Ignore.explain("eth0", &blocks).unwrap();
        assert!(told.contains("in clear"), "{told}");
        let none = IpsecPolicies::default();
        assert_eq!(HostIpsec::Refuse.explain("eth0", &none), None);
    }
}
