//! The paths to the peer's addresses: which one gets what (RFC 9260 sections 5.4, 6.4, 8.2). The first is the primary
//! path, and the only one as long as the peer tells of no other address.

use std::net::{IpAddr, SocketAddr};

use super::Association;
use crate::addresses::{OTHERS_MAX, Others};
use crate::config::Config;
use crate::cookie;
use crate::interface::{Ends, PathInfo, Route};
use crate::outbound::Lost;
use crate::path::{PATHS_MAX, Path};

impl<B> Association<B> {
    pub(crate) fn path_to(&self, remote: IpAddr) -> Option<usize> {
        let is_its = |path: &Path| path.remote == remote && !path.is_withdrawn;
        self.paths.iter().position(is_its)
    }

    /// Whether the peer has told of an address, if it is used or not.
    pub(crate) fn has_listed(&self, remote: IpAddr) -> bool {
        self.paths.iter().any(|path| path.remote == remote)
    }

    /// The peer has the addresses of a cookie that came back. It is there where the INIT ACK went (section 5.4).
    pub(super) fn add_paths_of(&mut self, cookie: &cookie::State, config: &Config) {
        let first = cookie.remote.ip();
        let mut others = Others::default();
        for address in std::iter::once(first).chain(cookie.others.iter()) {
            others.add(address, self.ends, OTHERS_MAX);
        }
        self.add_paths(&others, config);
        if let Some(at) = self.path_to(first) {
            self.paths[at].is_confirmed = true;
            self.heard_from = at;
        }
    }

    /// The peer has these addresses, too.
    pub(super) fn add_paths(&mut self, others: &Others, config: &Config) {
        for remote in others.iter() {
            if self.paths.len() == PATHS_MAX || self.path_to(remote).is_some() {
                continue;
            }
            let ends = Ends {
                remote: SocketAddr::new(remote, self.ends.remote.port()),
                ..self.ends
            };
            let udp = self.paths[0].udp;
            let mut path = Path::new(config, Route { ends, udp }, false);
            if let Some(mtu) = self.link_mtu {
                path.mtu.first_link(mtu);
                path.resized();
            }
            self.paths.push(path);
            self.has_new_addresses = true;
        }
        self.pending.resize(self.packet_max());
    }

    /// The ends of the paths beside the first, once after they changed.
    pub(crate) fn new_aliases(&mut self) -> Option<Vec<Ends>> {
        if !std::mem::take(&mut self.has_new_addresses) {
            return None;
        }
        let others = self.paths.iter().skip(1);
        let others = others.filter(|path| !path.is_withdrawn);
        Some(others.map(|path| path.route(self.ends).ends).collect())
    }

    /// Only the first path and these stay. Nothing was sent on the others.
    pub(crate) fn keep_paths(&mut self, is_its: impl Fn(&Ends) -> bool) {
        for at in 1..self.paths.len() {
            let path = &self.paths[at];
            if path.is_withdrawn || is_its(&path.route(self.ends).ends) {
                continue;
            }
            self.withdraw_path(at);
        }
    }

    fn withdraw_path(&mut self, at: usize) {
        self.paths[at].withdraw();
        self.has_new_addresses = true;
        if self.heard_from == at {
            self.heard_from = 0;
        }
    }

    /// The peer claims an address, and was not found there: what comes from there has a better right to it. `false`:
    /// it is this peer's.
    pub(crate) fn withdraw(&mut self, remote: IpAddr) -> bool {
        let Some(at) = self.path_to(remote).filter(|at| *at > 0) else {
            return false;
        };
        let is_free = !self.paths[at].is_confirmed;
        if is_free {
            self.withdraw_path(at);
        }
        is_free
    }

    /// A look at each path.
    pub(crate) fn path_infos(&self) -> impl Iterator<Item = PathInfo> + '_ {
        let paths = self.paths.iter().enumerate();
        let paths = paths.filter(|(_, path)| !path.is_withdrawn);
        paths.map(|(at, path)| PathInfo {
            remote: path.remote,
            is_confirmed: path.is_confirmed,
            is_active: path.is_active,
            errors: path.errors,
            cwnd: path.congestion.cwnd(),
            flight: self.outbound.flight_on(at),
            srtt: path.rto.srtt(),
            rto: path.rto.get(),
            mtu: path.mtu.plpmtu(),
            udp: path.udp,
        })
    }

    /// How packets go to an address of the peer.
    pub(crate) fn route_to(&self, remote: IpAddr) -> Option<Route> {
        let at = self.path_to(remote)?;
        Some(self.paths[at].route(self.ends))
    }

    /// Whether it is known that the peer is there.
    pub(crate) fn is_confirmed(&self, remote: IpAddr) -> bool {
        let at = self.path_to(remote);
        at.is_some_and(|at| self.paths[at].is_confirmed)
    }

    /// Where new data goes: on the primary path, and as long as that does not answer on the first that does. When none
    /// does, on the one that has failed the least (RFC 7829 section 3.2); when all are down, on the primary one again.
    pub(super) fn data_path(&self) -> usize {
        let sound = self.paths.iter().position(Path::is_sound);
        sound.or_else(|| self.least_failed()).unwrap_or(0)
    }

    #[cold]
    fn least_failed(&self) -> Option<usize> {
        let usable = (0..self.paths.len()).filter(|at| self.paths[*at].is_usable());
        usable.min_by_key(|at| self.paths[*at].errors)
    }

    /// Whether a path that may be used is left for another one: only heartbeats tell when it is back.
    pub(super) fn is_left(&self, at: usize) -> bool {
        let path = &self.paths[at];
        path.is_usable() && !path.is_sound() && self.data_path() != at
    }

    /// Where a lost chunk goes. What was reported missing stays on its path; what timed out goes to another one.
    pub(super) fn path_again(&self, lost: Lost) -> usize {
        let Lost { path, timed_out } = lost;
        if !timed_out && self.paths[path].is_usable() {
            return path;
        }
        let count = self.paths.len();
        let mut others = (1..count).map(|step| (path + step) % count);
        let all = others.clone().chain([path]);
        let sound = all.clone().find(|at| self.paths[*at].is_sound());
        let usable = sound.or_else(|| all.clone().find(|at| self.paths[*at].is_usable()));
        // When the peer answers nowhere all are tried.
        let tried = usable.or_else(|| others.find(|at| self.paths[*at].is_confirmed));
        tried.unwrap_or_else(|| self.data_path())
    }

    /// Where control chunks go: back to where the last packet came from, if the peer is known to be there.
    pub(super) fn control_path(&self) -> usize {
        match self.pending.has_only_heartbeat_acks() {
            true => self.heard_from,
            false => self.path_back(),
        }
    }

    /// Where the peer was heard last, if it is known to be there.
    pub(super) fn path_back(&self) -> usize {
        match self.paths[self.heard_from].is_confirmed {
            true => self.heard_from,
            false => self.data_path(),
        }
    }

    /// Where a SACK goes: to where the last data came from.
    pub(super) fn sack_path(&self) -> usize {
        match self.paths[self.data_from].is_confirmed {
            true => self.data_from,
            false => self.data_path(),
        }
    }

    /// Bytes of an SCTP packet that every path takes.
    pub(super) fn packet_max(&self) -> usize {
        let all = self.paths.iter().map(Path::packet_max);
        all.min().unwrap_or_default()
    }
}
