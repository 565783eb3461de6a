//! What a shard counts, under the names that operators see. The order is fixed: a counter keeps
//! its place while the program runs.

use rnic_ipc::control::DisconnectReason;
use rnic_net::{DropReason, ListOwner, ReassemblyCounters};
use rnic_xsk::{HandoverStatistics, PortStatistics};
use userspace_sctp::Counters as SctpCounters;
use userspace_tcp::{ConnCounters, Counters as TcpCounters};

use crate::command::ForbiddenBy;
use crate::qp::QpCounters;

/// What the shard itself counts; packets and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Frames dropped, by reason, in the order of [`UNUSABLE`].
    unusable: [u64; UNUSABLE.len()],
    /// Segments whose TCP header is not sound.
    pub tcp_malformed: u64,
    /// Segments to an address of a VLAN that came by another, or by none.
    pub wrong_vlan: u64,
    /// Segments that arrive over a network with a source address of this host, which no network delivers (RFC
    /// 1122 section 3.2.1.3, RFC 4291 section 2.5.3). Also those
    /// of no connection that name the broadcast address of a subnet, and those for a connection of the loopback or
    /// of an internal link.
    pub martians: u64,
    /// Segments that were taken with a partial TCP checksum: they have not been on a wire.
    pub partial_checksums: u64,
    /// Segments to listeners that were dropped because an allow-list does not have the peer, by whose list it
    /// is, in the order of [`PEERS_REFUSED`].
    peers_refused: [u64; PEERS_REFUSED.len()],
    /// What the host's IPsec forbade in clear.
    ipsec: HostPolicyCounters,
    /// What the host's routes and rules rejected.
    routes: HostPolicyCounters,
    /// Connections accepted at TCP level.
    pub passive_opens: u64,
    /// Connections of `Connect` commands.
    pub active_opens: u64,
    /// Connections that reached RDMA mode.
    pub established: u64,
    /// Connections that failed before RDMA mode.
    pub startup_failed: u64,
    /// Connections in RDMA mode that ended, by how, as [`Ended::ALL`].
    ended: [u64; Ended::ALL.len()],
    /// Connections that were asked for again, without Markers, because the peer rejected.
    pub markers_refused: u64,
    /// Sessions that were asked for again, on an association of their own, because the one that they joined went or
    /// its peer took no more on it.
    pub sessions_begun_again: u64,
    /// Messages that no session took: there was no place for one, or their stream took none any more.
    pub sessions_unplaced: u64,
    /// Passive connections reset because a listener's backlog was full of Requests.
    pub backlog_full: u64,
    /// Connections reset to free their place for a new one: before their MPA Request was whole, or after a
    /// rejection.
    pub backlog_evicted: u64,
    /// Passive connections reset because the peer's streams ended by invalid STags, again and again.
    pub stag_scan_limit: u64,
    /// Connections that did not finish the MPA start-up in time.
    pub startup_timeouts: u64,
    /// Requests that the application did not answer in time.
    pub answer_timeouts: u64,
    /// Closing connections that were reset because the peer took too long.
    pub close_timeouts: u64,
    /// Connections that were reset because the peer owed an answer and was silent.
    pub silence_timeouts: u64,
    /// Segments whose bytes were copied to a bounce ring.
    pub bounced: u64,
    /// Bytes of FPDUs' streams that came before others ahead of them.
    pub bytes_out_of_order: u64,
    /// Bytes of those that were part of an FPDU which was placed before its turn.
    pub bytes_placed_early: u64,
    /// Times that sending waited for a free frame.
    pub no_frame: u64,
    /// Times that a connection had to wait because those to its peer had as much under way as they may.
    pub macroflow_waits: u64,
    /// Times that connections to one peer were allowed less under way, for losses.
    pub macroflow_reductions: u64,
    /// Times that a frame found its port's transmit ring full.
    pub transmit_full: u64,
    /// Segments that could not be sent: no way back is known, or the headers don't fit. A fault of the RNIC's own:
    /// tests fail in which it is counted.
    pub unsendable: u64,
    /// SCTP packets to a further address of a peer, to which no way is known (yet).
    pub no_path: u64,
    /// Segments that were cut because the peer's window had stayed too small for a whole FPDU.
    pub fpdus_cut: u64,
    /// ICMP errors about flows of ours that were given to TCP.
    pub icmp_errors: u64,
    /// Of these, those that TCP did not believe: no such connection, or no such segment under way.
    pub icmp_ignored: u64,
    /// Times that a connection's segment size changed because its path's MTU was found to differ.
    pub mss_changes: u64,
    /// Times that a connection's frames took another way: other Ethernet addresses, MTU or hop limit.
    pub path_moves: u64,
    /// Segments that were sent as IP fragments, once for each time.
    pub fragmented: u64,
    /// IP fragments sent.
    pub fragments_sent: u64,
    /// Times that a port could not be flushed (interface down or gone).
    pub flush_failed: u64,
    /// Clients whose rings or memory were at fault.
    pub client_faults: u64,
    /// Regions and rings whose memory was gone when it was accessed.
    pub memory_faults: u64,
}

/// What of the host's policy came to bear on this shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostPolicyCounters {
    /// Connections that were not begun.
    pub connects: u64,
    /// Segments of no connection that were dropped, and answers to them.
    pub dropped: u64,
    pub ended: u64,
}

/// Each reason for which a frame is dropped, and its counter's name.
const UNUSABLE: [(DropReason, &str); 9] = [
    (DropReason::Truncated, "rx_truncated"),
    (DropReason::NotIp, "rx_not_ip"),
    (DropReason::IpHeader, "rx_bad_ip_header"),
    (DropReason::IpChecksum, "rx_bad_ip_checksum"),
    (DropReason::OtherProtocol, "rx_other_protocol"),
    (DropReason::GroupAddress, "rx_group_address"),
    (DropReason::SourceRoute, "rx_source_route"),
    (DropReason::TcpChecksum, "rx_bad_tcp_checksum"),
    (DropReason::UdpChecksum, "rx_bad_udp_checksum"),
];

/// Each owner of an allow-list, and its counter's name.
const PEERS_REFUSED: [(ListOwner, &str); ListOwner::ALL.len()] = [
    (ListOwner::Interface, "peers_refused_interface"),
    (ListOwner::User, "peers_refused_user"),
    (ListOwner::Listener, "peers_refused_listener"),
];

/// How a connection in RDMA mode ended, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides closed, this one first.
    ClosedHere,
    /// Both sides closed, the peer first.
    ClosedByPeer,
    /// The program, or an operator, had it reset.
    Aborted,
    /// Its queue pair went: the program destroyed it, ended, or was taken away.
    OwnerGone,
    ResetByPeer,
    /// The peer did not answer for the user timeout, to no keep-alive probe, or did not close.
    TimedOut,
    /// The peer closed it in the middle of a message.
    CutByPeer,
    /// By an error of the peer's, of which it was told by a Terminate.
    TerminateSent,
    /// By an error that the peer found, and reported by a Terminate.
    TerminateReceived,
    /// By an error of the peer's of which no Terminate may tell it.
    PeerFault,
    /// By an error of this side's: of a work request, or of the program's queues.
    LocalError,
    /// Its interface was taken away.
    InterfaceGone,
    /// Its local address was taken away.
    AddressGone,
    /// For a reason that no connection in RDMA mode is known to end for.
    Other,
}

impl Ended {
    pub const ALL: [Self; 14] = [
        Self::ClosedHere,
        Self::ClosedByPeer,
        Self::Aborted,
        Self::OwnerGone,
        Self::ResetByPeer,
        Self::TimedOut,
        Self::CutByPeer,
        Self::TerminateSent,
        Self::TerminateReceived,
        Self::PeerFault,
        Self::LocalError,
        Self::InterfaceGone,
        Self::AddressGone,
        Self::Other,
    ];

    /// Of a connection that ended for this reason, which the peer closed first or not.
    pub(crate) fn of(reason: DisconnectReason, peer_closed_first: bool) -> Self {
        match reason {
            DisconnectReason::Graceful if peer_closed_first => Self::ClosedByPeer,
            DisconnectReason::Graceful => Self::ClosedHere,
            DisconnectReason::Aborted => Self::Aborted,
            DisconnectReason::Reset => Self::ResetByPeer,
            DisconnectReason::TimedOut => Self::TimedOut,
            DisconnectReason::PeerClosed => Self::CutByPeer,
            DisconnectReason::TerminateSent { .. } => Self::TerminateSent,
            DisconnectReason::TerminateReceived { .. } => Self::TerminateReceived,
            DisconnectReason::PeerFault { .. } | DisconnectReason::NotMpa => Self::PeerFault,
            DisconnectReason::LocalError => Self::LocalError,
            DisconnectReason::InterfaceGone => Self::InterfaceGone,
            DisconnectReason::AddressGone => Self::AddressGone,
            _ => Self::Other,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::ClosedHere => "ended_closed_here",
            Self::ClosedByPeer => "ended_closed_by_peer",
            Self::Aborted => "ended_aborted",
            Self::OwnerGone => "ended_owner_gone",
            Self::ResetByPeer => "ended_reset_by_peer",
            Self::TimedOut => "ended_timed_out",
            Self::CutByPeer => "ended_cut_by_peer",
            Self::TerminateSent => "ended_terminate_sent",
            Self::TerminateReceived => "ended_terminate_received",
            Self::PeerFault => "ended_peer_fault",
            Self::LocalError => "ended_local_error",
            Self::InterfaceGone => "ended_interface_gone",
            Self::AddressGone => "ended_address_gone",
            Self::Other => "ended_other",
        }
    }
}

impl ShardCounters {
    /// Counts a connection in RDMA mode that ended.
    pub(crate) fn count_ended(&mut self, ended: Ended) {
        self.ended[ended as usize] += 1;
    }

    /// Counts a segment of a peer that this owner's allow-list does not have.
    pub fn count_refused_peer(&mut self, list: ListOwner) {
        for ((known, _), count) in PEERS_REFUSED.iter().zip(&mut self.peers_refused) {
            if *known == list {
                *count += 1;
            }
        }
    }

    pub fn host_policy(&mut self, by: ForbiddenBy) -> &mut HostPolicyCounters {
        match by {
            ForbiddenBy::Ipsec => &mut self.ipsec,
            ForbiddenBy::Routes => &mut self.routes,
        }
    }

    /// Counts a dropped frame.
    pub fn count_unusable(&mut self, reason: DropReason) {
        for ((known, _), count) in UNUSABLE.iter().zip(&mut self.unusable) {
            if *known == reason {
                *count += 1;
            }
        }
    }

    /// How many frames were dropped for this reason.
    pub fn unusable(&self, reason: DropReason) -> u64 {
        let mut both = UNUSABLE.iter().zip(&self.unusable);
        both.find(|((known, _), _)| *known == reason)
            .map_or(0, |(_, count)| *count)
    }
}

/// What else a shard tells of itself; a level, not a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// TCP connections and DDP Stream Sessions.
    pub connections: usize,
    pub associations: usize,
    pub queue_pairs: usize,
    /// Valid STags.
    pub regions: usize,
    /// Queues of queue pairs that are not empty, and have memory of the shard's for that.
    pub queues_lent: usize,
    /// Frames that are free; a wide one counts for each of its chunks.
    pub frames_free: usize,
    /// Received frames held by connections.
    pub frames_held: usize,
    /// Streams that wait for a receive to be posted.
    pub streams_held: usize,
    /// Bytes in order that wait with them.
    pub bytes_held: u64,
    pub frames_on_link: usize,
}

/// Every counter of a shard, named, in a fixed order.
pub(crate) fn named(
    shard: &ShardCounters,
    reassembly: &ReassemblyCounters,
    qp: &QpCounters,
    (tcp, streams, sctp): (&TcpCounters, &ConnCounters, &SctpCounters),
    levels: &Levels,
    (handover, unentered): (&HandoverStatistics, u64),
    ports: impl Iterator<Item = PortStatistics>,
) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    let mut put = |name: &str, value: u64| out.push((name.to_string(), value));
    for ((_, name), value) in UNUSABLE.iter().zip(&shard.unusable) {
        put(name, *value);
    }
    put("rx_tcp_malformed", shard.tcp_malformed);
    put("rx_wrong_vlan", shard.wrong_vlan);
    put("rx_martians", shard.martians);
    put("rx_partial_checksums", shard.partial_checksums);
    for ((_, name), value) in PEERS_REFUSED.iter().zip(&shard.peers_refused) {
        put(name, *value);
    }
    put("ipsec_refused_connects", shard.ipsec.connects);
    put("ipsec_dropped_segments", shard.ipsec.dropped);
    put("ipsec_ended_connections", shard.ipsec.ended);
    put("routes_refused_connects", shard.routes.connects);
    put("routes_dropped_segments", shard.routes.dropped);
    put("routes_ended_connections", shard.routes.ended);
    put("passive_opens", shard.passive_opens);
    put("active_opens", shard.active_opens);
    put("established", shard.established);
    put("startup_failed", shard.startup_failed);
    for (ended, value) in Ended::ALL.into_iter().zip(&shard.ended) {
        put(ended.name(), *value);
    }
    put("markers_refused", shard.markers_refused);
    put("sessions_begun_again", shard.sessions_begun_again);
    put("sessions_unplaced", shard.sessions_unplaced);
    put("backlog_full", shard.backlog_full);
    put("backlog_evicted", shard.backlog_evicted);
    put("stag_scan_limit", shard.stag_scan_limit);
    put("startup_timeouts", shard.startup_timeouts);
    put("answer_timeouts", shard.answer_timeouts);
    put("close_timeouts", shard.close_timeouts);
    put("silence_timeouts", shard.silence_timeouts);
    put("bytes_out_of_order", shard.bytes_out_of_order);
    put("bytes_placed_early", shard.bytes_placed_early);
    let parked = shard
        .bytes_out_of_order
        .saturating_sub(shard.bytes_placed_early);
    put("bytes_parked", parked);
    put("bounced", shard.bounced);
    put("no_frame", shard.no_frame);
    put("macroflow_waits", shard.macroflow_waits);
    put("macroflow_reductions", shard.macroflow_reductions);
    put("transmit_full", shard.transmit_full);
    put("unsendable", shard.unsendable);
    put("no_path", shard.no_path);
    put("fpdus_cut", shard.fpdus_cut);
    put("icmp_errors", shard.icmp_errors);
    put("icmp_ignored", shard.icmp_ignored);
    put("mss_changes", shard.mss_changes);
    put("path_moves", shard.path_moves);
    put("tx_fragmented", shard.fragmented);
    put("tx_fragments", shard.fragments_sent);
    for (name, value) in reassembly.named() {
        put(name, value);
    }
    put("handover_given", handover.given);
    put("handover_taken", handover.taken);
    put("handover_full", handover.full);
    put("handover_no_frame", handover.no_frame);
    put("flow_table_full", unentered);
    put("flush_failed", shard.flush_failed);
    put("client_faults", shard.client_faults);
    put("memory_faults", shard.memory_faults);
    put("connections", levels.connections as u64);
    put("associations", levels.associations as u64);
    put("queue_pairs", levels.queue_pairs as u64);
    put("regions", levels.regions as u64);
    put("frames_free", levels.frames_free as u64);
    put("frames_held", levels.frames_held as u64);
    put("streams_held", levels.streams_held as u64);
    put("bytes_held", levels.bytes_held);
    put("frames_on_link", levels.frames_on_link as u64);
    put("tcp_backlog_full", tcp.backlog_full);
    put("tcp_cookies_sent", tcp.cookies_sent);
    put("tcp_cookies_accepted", tcp.cookies_accepted);
    put("tcp_cookies_rejected", tcp.cookies_rejected);
    put("tcp_half_open_evicted", tcp.half_open_evicted);
    put("tcp_table_full", tcp.table_full);
    put("tcp_unknown_flow", tcp.unknown_flow);
    put("tcp_resets_sent", tcp.resets_sent);
    put("tcp_resets_limited", tcp.resets_limited);
    put("tcp_time_wait_evicted", tcp.time_wait_evicted);
    put("tcp_segments_in", streams.segments_in);
    put("tcp_segments_out", streams.segments_out);
    put("tcp_bytes_in", streams.bytes_in);
    put("tcp_bytes_out", streams.bytes_out);
    put("tcp_retransmits", streams.retransmits);
    put("tcp_timeouts", streams.timeouts);
    put("tcp_fast_recoveries", streams.fast_recoveries);
    put("tcp_probes", streams.probes);
    put("tcp_out_of_order", streams.out_of_order);
    put("tcp_duplicates", streams.duplicates);
    put("tcp_ranges_full", streams.ranges_full);
    put("tcp_paws_dropped", streams.paws_dropped);
    put("tcp_challenges", streams.challenges);
    put("sctp_packets_in", sctp.packets_in);
    put("sctp_packets_out", sctp.packets_out);
    put("sctp_chunks_out", sctp.chunks_out);
    put("sctp_retransmits", sctp.retransmits);
    put("sctp_timeouts", sctp.timeouts);
    put("sctp_malformed", sctp.malformed);
    put("sctp_wrong_tags", sctp.wrong_tags);
    put("sctp_unknown_flow", sctp.strangers);
    put("sctp_inits_refused", sctp.inits_refused);
    put("sctp_cookies_rejected", sctp.foreign_cookies);
    put("sctp_cookies_stale", sctp.stale_cookies);
    put("sctp_table_full", sctp.associations_refused);
    put("sctp_answers_dropped", sctp.answers_dropped);
    for (name, value) in qp.named() {
        put(name, value);
    }
    for (index, statistics) in ports.enumerate() {
        for (name, value) in statistics.named() {
            put(&format!("port{index}_{name}"), value);
        }
    }
    out
}
