//! How frames get to the addresses of a peer. Over SCTP it may have several (RFC 9260 section 6.4).

use std::net::IpAddr;

use rnic_net::Path;
use userspace_net::FourTuple;

use super::Conn;

/// The addresses of a peer beside that of the connection's ends. Few peers have any: so a connection has them elsewhere.
#[derive(Debug)]
pub(crate) struct FurtherPaths(Vec<PeerPath>);

#[derive(Debug)]
struct PeerPath {
    remote: IpAddr,
    /// None: it is not known yet.
    path: Option<Path>,
    /// Its flow was entered in [`FlowSink`](super::FlowSink).
    known: bool,
}

impl Conn {
    /// The peer has these addresses, too.
    pub fn add_peer_addresses(&mut self, others: impl Iterator<Item = IpAddr>) {
        let new = |remote| PeerPath {
            remote,
            path: None,
            known: false,
        };
        let others: Vec<PeerPath> = others.map(new).collect();
        self.others = (!others.is_empty()).then(|| Box::new(FurtherPaths(others)));
    }

    fn others(&self) -> &[PeerPath] {
        self.others.as_deref().map_or(&[], |others| &others.0)
    }

    fn others_mut(&mut self) -> &mut [PeerPath] {
        let others = self.others.as_deref_mut();
        others.map_or(&mut [], |others| &mut others.0)
    }

    /// Whether it is an address of the peer.
    pub fn is_to(&self, remote: IpAddr) -> bool {
        remote == self.tuple.remote.addr || self.others().iter().any(|peer| peer.remote == remote)
    }

    /// How frames get to an address of the peer; none when that is not known, or it has no such address.
    #[inline]
    pub fn path_to(&self, remote: IpAddr) -> Option<&Path> {
        if remote == self.tuple.remote.addr {
            return Some(&self.path);
        }
        let peer = self.others().iter().find(|peer| peer.remote == remote)?;
        peer.path.as_ref()
    }

    /// Frames get to an address of the peer like this from now on; how they did before.
    pub fn set_path(&mut self, remote: IpAddr, path: Path) -> Option<Path> {
        if remote == self.tuple.remote.addr {
            return Some(std::mem::replace(&mut self.path, path));
        }
        let peer = self
            .others_mut()
            .iter_mut()
            .find(|peer| peer.remote == remote)?;
        peer.path.replace(path)
    }

    /// The ends, once with each address of the peer, and how frames get there.
    pub fn paths(&self) -> impl Iterator<Item = (FourTuple, Option<Path>)> + '_ {
        let others = self.others().iter();
        let others = others.map(|peer| (peer.tuple(&self.tuple), peer.path));
        std::iter::once((self.tuple, Some(self.path))).chain(others)
    }

    /// The ends with an address at which the peer has answered for the first time.
    pub(super) fn confirm(&mut self, remote: IpAddr) -> Option<FourTuple> {
        let first = self.tuple;
        let mut new = self.others_mut().iter_mut().filter(|peer| !peer.known);
        let peer = new.find(|peer| peer.remote == remote)?;
        peer.known = true;
        Some(peer.tuple(&first))
    }

    /// The ends with the addresses at which the peer has answered.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = FourTuple> + '_ {
        let known = self.others().iter().filter(|peer| peer.known);
        known.map(|peer| peer.tuple(&self.tuple))
    }
}

impl PeerPath {
    fn tuple(&self, first: &FourTuple) -> FourTuple {
        let mut tuple = *first;
        tuple.remote.addr = self.remote;
        tuple
    }
}
