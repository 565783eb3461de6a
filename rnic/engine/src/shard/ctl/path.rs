//! Changes of the paths to the peers: ICMP errors and the segment size that follows (RFC 1191, RFC 8201, RFC
//! 8899), and changes of the host's routes and neighbours.

use std::net::IpAddr;

use rnic_net::{ETHERNET_HEADER, IcmpReport, Path, PathDefaults, Quoted, VLAN_TAG};
use rnic_xsk::Port;
use userspace_net::ConnId;
use userspace_sctp::{IcmpError, IcmpQuote};
use userspace_tcp::IcmpError as TcpIcmpError;

use crate::command::{CommandError, PathInUse, ShardEvent};
use crate::conn::Conn;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::sctp;
use crate::shard::tx::Tx;

/// The least IP MTU, in bytes, over which connections are made: that of IPv4 hosts (RFC 791).
const MTU_MIN: u32 = 576;

impl Ctl {
    /// ICMP errors about segments that we sent, or that are claimed to be ours.
    pub(in crate::shard) fn icmp_errors<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        reports: &[IcmpReport],
    ) {
        for report in reports {
            dp.counters.icmp_errors += 1;
            if !dp.icmp_error(report) {
                dp.counters.icmp_ignored += 1;
            }
        }
        self.handle_association_events(dp, tx, None);
        self.handle_open_events(dp, tx);
        self.handle_close_events(dp, tx);
    }

    /// Has the connections between two addresses, of one VLAN, use another path.
    pub(in crate::shard) fn move_path<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        local: IpAddr,
        remote: IpAddr,
        path: Path,
    ) -> Result<(), CommandError> {
        dp.check_mtu(&path, 0, remote)?;
        let interface = 0..dp.interface_ports;
        let moved = dp.conns.ids_where(|conn| {
            let is_between = conn.tuple.local.addr == local && conn.is_to(remote);
            let moves = conn.path.vlan == path.vlan && conn.path_to(remote) != Some(&path);
            conn.has_path() && is_between && moves && interface.contains(&conn.port())
        });
        for id in moved {
            let Some(conn) = dp.conns.get_mut(id) else {
                continue;
            };
            let transport = conn.transport();
            // The first way to an address is no change.
            if conn.set_path(remote, path).is_some() {
                dp.counters.path_moves += 1;
                dp.llp_mut(transport, |llp, with| llp.path_moved(with.now, id, remote));
            }
            dp.llp_mut(transport, |llp, with| llp.limit_mtu(with.now, id, path.mtu));
        }
        self.handle_open_events(dp, tx);
        self.handle_close_events(dp, tx);
        Ok(())
    }

    /// The peer is silent: asks the owner, which follows routes and neighbours, to check whether the peer
    /// moved.
    pub(in crate::shard) fn doubt_path<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        if let Some(conn) = dp.conns.get(id) {
            self.doubt_address(dp, id, conn.tuple.remote.addr);
        }
    }

    /// The same of one of the peer's addresses.
    pub(in crate::shard) fn doubt_address<P: Port>(
        &mut self,
        dp: &Datapath<P>,
        id: ConnId,
        remote: IpAddr,
    ) {
        if let Some(conn) = dp.conns.get(id).filter(|conn| dp.goes_over_interface(conn)) {
            let local = conn.tuple.local.addr;
            self.events
                .push_back(ShardEvent::PathDoubtful { local, remote });
        }
    }

    /// Segments of other sizes from now on. Producing asks for the size of each segment; what was
    /// posted before stays as it is.
    pub(in crate::shard) fn mss_changed<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        mss: usize,
    ) {
        dp.counters.mss_changes += 1;
        if let Some(conn) = dp.conns.get(id) {
            log::debug!("{}: segments of {mss} bytes from now on", conn.tuple);
        }
        tx.make_ready(dp, id);
    }
}

impl<P: Port> Datapath<P> {
    /// Has TCP or SCTP judge an error; whether it is heeded.
    fn icmp_error(&mut self, report: &IcmpReport) -> bool {
        let IcmpReport {
            tuple,
            quoted,
            error,
        } = *report;
        let id = match quoted {
            Quoted::Segment { .. } => self.stack.find(&tuple),
            Quoted::Packet { .. } => {
                let assoc = self.sctp.stack.find(&sctp::ends(&tuple));
                assoc.map(|assoc| self.sctp.sessions.carrier(assoc))
            }
        };
        // No router stands between the ends of a connection within the host.
        let conn = id.and_then(|id| self.conns.get(id));
        if conn.is_some_and(|conn| !self.goes_over_interface(conn)) {
            return false;
        }
        match quoted {
            Quoted::Segment { seq } => self.stack.icmp(self.now, tuple, seq, error),
            Quoted::Packet {
                tag,
                init_tag,
                no_protocol,
            } => {
                let quote = IcmpQuote {
                    ends: sctp::ends(&tuple),
                    tag,
                    init_tag,
                };
                let error = match error {
                    TcpIcmpError::PacketTooBig { mtu } => {
                        IcmpError::PacketTooBig { mtu: mtu as usize }
                    }
                    TcpIcmpError::Unreachable { .. } if no_protocol => IcmpError::NoProtocol,
                    // SCTP finds out by itself (RFC 9260 section 10).
                    TcpIcmpError::Unreachable { .. } => return false,
                };
                self.sctp.stack.icmp(self.now, &quote, error)
            }
        }
    }

    /// What passive connections begin with. Their segments have to fit into frames that are there.
    pub(in crate::shard) fn set_path_defaults(&mut self, defaults: PathDefaults) {
        let most = self
            .frame_capacity(0)
            .saturating_sub(ETHERNET_HEADER + VLAN_TAG);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        // They say no more what parsing would.
        self.conns.forget_predictions();
        self.config.path_defaults = PathDefaults {
            mtu: defaults.mtu.min(most),
            ..defaults
        };
    }

    /// That packets of the path's MTU are none that IP hosts need not take, and fit into frames.
    pub(in crate::shard) fn check_mtu(
        &self,
        path: &Path,
        port: usize,
        remote: IpAddr,
    ) -> Result<(), CommandError> {
        let most = self.frame_capacity(port).saturating_sub(path.link_len());
        if path.mtu < MTU_MIN || path.mtu as usize > most {
            return Err(CommandError::Invalid(format!(
                "an IP MTU of {} bytes to {remote}; {MTU_MIN} to {most} are supported",
                path.mtu
            )));
        }
        Ok(())
    }

    /// The ways over the interface that connections use.
    pub(in crate::shard) fn paths_in_use(&self) -> Vec<PathInUse> {
        let conns = self.conns.iter().filter(|conn| conn.has_path());
        let over_interface = conns.filter(|conn| self.goes_over_interface(conn));
        let mut paths: Vec<_> = over_interface.flat_map(paths_of).collect();
        // Connections of one peer come together, so those that are alike do.
        paths.sort_unstable_by_key(|it| (it.local, it.remote, it.path.map(|path| path.vlan)));
        paths.dedup();
        paths
    }
}

fn paths_of(conn: &Conn) -> impl Iterator<Item = PathInUse> + '_ {
    conn.paths().map(|(tuple, path)| PathInUse {
        local: tuple.local.addr,
        remote: tuple.remote.addr,
        path,
    })
}
