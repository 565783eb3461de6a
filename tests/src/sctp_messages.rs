//! An association of `raw_messages` (`userspace-sctp`) with a peer's `sctp-messages` (`tests/interop/sctp`): what both
//! programs are told, how long they may take, and what both must say.

use std::net::IpAddr;
use std::time::Duration;

use crate::lab::Family;

/// The longest message of ours: one chunk in a packet of 1500 bytes.
const OURS_MAX: usize = 1432;
/// The same in UDP.
const OURS_MAX_IN_UDP: usize = 1424;
/// And of the peer's: up to three fragments.
const THEIRS_MAX: usize = 4000;
/// How long an association may take for each MiB.
const LIMIT_PER_MIB: Duration = Duration::from_secs(30);

/// How an association goes, but for its link.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Of both ends' addresses.
    pub family: Family,
    /// We send the INIT.
    pub we_connect: bool,
    pub we_end: bool,
    /// `shutdown` or `abort`.
    pub end: &'static str,
    /// Packets are in UDP, both ends on this port (RFC 6951).
    pub udp: Option<u16>,
    /// MiB that we send. The peer sends as many messages, which are longer.
    pub mib: usize,
}

impl Run {
    /// How long the association may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        LIMIT_PER_MIB * u32::try_from(self.mib).expect("a number of MiB")
    }

    /// The arguments of `raw_messages`.
    #[must_use]
    pub fn our_words(&self, ours: IpAddr, theirs: IpAddr) -> Vec<String> {
        let longest = [self.ours_max(), THEIRS_MAX];
        self.words(self.we_connect, [ours, theirs], longest, self.we_end)
    }

    /// And of the peer's program.
    #[must_use]
    pub fn their_words(&self, ours: IpAddr, theirs: IpAddr) -> Vec<String> {
        let longest = [THEIRS_MAX, self.ours_max()];
        self.words(!self.we_connect, [theirs, ours], longest, !self.we_end)
    }

    /// Panics unless both programs got all messages and saw the same end.
    #[track_caller]
    pub fn assert_done(&self, ours: &str, theirs: &str) {
        for (said, ends) in [(ours, self.we_end), (theirs, !self.we_end)] {
            let how = match self.end {
                "abort" if ends => "aborts",
                "abort" => "aborted",
                other => other,
            };
            let received = self.messages();
            let expected = format!("event=result received={received} adaptation=1 how={how}");
            assert!(said.contains(&expected), "{self:?}: {expected}: {said}");
        }
    }

    fn ours_max(&self) -> usize {
        self.udp.map_or(OURS_MAX, |_| OURS_MAX_IN_UDP)
    }

    /// Messages of each end: those of ours have half the longest one's length on average.
    fn messages(&self) -> usize {
        (self.mib << 20) / (self.ours_max() / 2)
    }

    /// The arguments of one program: its own and the other's addresses and longest messages.
    fn words(
        &self,
        connects: bool,
        at: [IpAddr; 2],
        longest: [usize; 2],
        ends: bool,
    ) -> Vec<String> {
        let role = if connects { "connect" } else { "listen" };
        let mut words = vec![role.to_owned()];
        words.extend(at.map(|at| at.to_string()));
        words.push(self.messages().to_string());
        words.extend(longest.map(|longest| longest.to_string()));
        words.push(if ends { self.end } else { "wait" }.to_owned());
        words.extend(self.udp.map(|port| port.to_string()));
        words
    }
}

/// MiB that we send on an association: 1, or what `RNIC_TEST_SCTP_MIB` says.
///
/// # Panics
///
/// When it is no number.
#[must_use]
pub fn mib() -> usize {
    let mib = std::env::var("RNIC_TEST_SCTP_MIB");
    mib.map_or(1, |mib| {
        mib.parse().expect("RNIC_TEST_SCTP_MIB is a number")
    })
}
