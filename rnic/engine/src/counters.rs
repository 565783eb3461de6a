//! What a shard counts, under the names that operators see. The order is fixed: a counter keeps its place while the
//! program runs.

use rnic_ipc::control::DisconnectReason;
use rnic_net::{DropReason, ListOwner, ReassemblyCounters};
use rnic_xsk::{HandoverStatistics, PortStatistics};
use userspace_sctp::Counters as SctpCounters;
use userspace_tcp::{ConnCounters, Counters as TcpCounters};

use crate::command::ForbiddenBy;
use crate::metrics::{Counted, Family};
use crate::qp::QpCounters;

/// The metrics of a shard, but for those of its ports.
pub const SHARD: [&[Family]; 8] = [
    ShardCounters::FAMILIES,
    Levels::FAMILIES,
    <(HandoverStatistics, u64)>::FAMILIES,
    ReassemblyCounters::FAMILIES,
    TcpCounters::FAMILIES,
    ConnCounters::FAMILIES,
    SctpCounters::FAMILIES,
    QpCounters::FAMILIES,
];

crate::counters! {
    /// What the shard itself counts; packets and connections.
    pub struct ShardCounters;
    "rnic_frames_dropped_total": "Received frames dropped, by reason.",
        rx_truncated(reason = "truncated"), rx_not_ip(reason = "not_ip"), rx_bad_ip_header(reason = "bad_ip_header"),
        rx_bad_ip_checksum(reason = "bad_ip_checksum"), rx_other_protocol(reason = "other_protocol"),
        rx_group_address(reason = "group_address"), rx_source_route(reason = "source_route"),
        rx_bad_tcp_checksum(reason = "bad_tcp_checksum"), rx_bad_udp_checksum(reason = "bad_udp_checksum"),
        rx_tcp_malformed(reason = "bad_tcp_header"),
        // To an address of a VLAN, by another one or by none.
        rx_wrong_vlan(reason = "wrong_vlan"),
        // Over a network, with a source address of this host (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3). Or of
        // no connection and with a broadcast address. Or for a connection of the loopback or of an internal link.
        rx_martians(reason = "martian"),
        // Of no association, through a UDP socket, and more than `syn_rate` and `unknown_flow_rate` let through.
        rx_init_rate(reason = "syn_rate"), rx_unknown_flow_rate(reason = "unknown_flow_rate");
    "rnic_partial_checksums_total": "Received TCP segments whose checksum the sending host left to a device without a wire, which were taken.",
        rx_partial_checksums;
    "rnic_peers_refused_total": "Segments to listeners that were dropped because an allow-list does not have the peer, by whose list it is.",
        peers_refused_interface(list = "interface"), peers_refused_user(list = "user"),
        peers_refused_listener(list = "listener");
    "rnic_host_ipsec_total": "Connections refused, segments of no connection dropped and connections ended because the host's IPsec policies forbid them in clear.",
        ipsec_refused_connects(what = "connect_refused"), ipsec_dropped_segments(what = "segment_dropped"),
        ipsec_ended_connections(what = "connection_ended");
    "rnic_host_routes_total": "Connections refused, segments of no connection dropped and connections ended because the host's routes or rules reject what goes to the peer.",
        routes_refused_connects(what = "connect_refused"), routes_dropped_segments(what = "segment_dropped"),
        routes_ended_connections(what = "connection_ended");
    "rnic_connections_opened_total": "TCP connections begun, by the side that began them: this side (active) or the peer (passive).",
        active_opens(side = "active"), passive_opens(side = "passive");
    "rnic_connections_established_total": "Connections that reached RDMA mode.", established;
    "rnic_connections_failed_total": "Connections that ended before RDMA mode.", startup_failed;
    "rnic_connections_ended_total": "Connections in RDMA mode that ended, by how.",
        ended_closed_here(reason = "closed_here"), ended_closed_by_peer(reason = "closed_by_peer"),
        ended_aborted(reason = "aborted"), ended_owner_gone(reason = "owner_gone"),
        ended_reset_by_peer(reason = "reset_by_peer"), ended_timed_out(reason = "timed_out"),
        ended_cut_by_peer(reason = "cut_by_peer"), ended_terminate_sent(reason = "terminate_sent"),
        ended_terminate_received(reason = "terminate_received"), ended_peer_fault(reason = "peer_fault"),
        ended_local_error(reason = "local_error"), ended_interface_gone(reason = "interface_gone"),
        ended_address_gone(reason = "address_gone"), ended_other(reason = "other");
    "rnic_connections_without_markers_total": "Connections asked for again without Markers, which the peer seemed to refuse.",
        markers_refused;
    "rnic_connections_reset_total": "Connections that the RNIC reset on its own, by reason: a timeout, a full backlog, or STag scanning.",
        backlog_full(reason = "backlog_full"), backlog_evicted(reason = "backlog_evicted"),
        stag_scan_limit(reason = "stag_scan_limit"), startup_timeouts(reason = "startup_timeout"),
        answer_timeouts(reason = "answer_timeout"), close_timeouts(reason = "close_timeout"),
        silence_timeouts(reason = "silence_timeout");
    "rnic_out_of_order_bytes_total": "Bytes of FPDU streams received out of order.",
        bytes_out_of_order;
    "rnic_placed_early_bytes_total": "Bytes that were placed in the application's memory out of order.",
        bytes_placed_early;
    "rnic_bounced_segments_total": "Segments whose bytes were copied to a bounce ring, because frames ran low or there were too many pieces.",
        bounced;
    "rnic_send_waits_total": "Times that sending had to wait, by reason.",
        no_frame(reason = "no_frame"), transmit_full(reason = "transmit_ring_full"),
        macroflow_waits(reason = "macroflow");
    "rnic_macroflow_reductions_total": "Times that the connections to one peer were allowed fewer segments in flight because of losses.",
        macroflow_reductions;
    "rnic_unsendable_segments_total": "Segments that could not be sent: no way is known, or the headers don't fit. Always 0, else please report it.",
        unsendable;
    "rnic_no_path_packets_total": "SCTP packets to a further address of a peer, to which no way is known.",
        no_path;
    "rnic_fpdus_cut_total": "Segments cut because the peer's window stayed too small for a whole FPDU.",
        fpdus_cut;
    "rnic_icmp_errors_total": "ICMP errors about flows of the RNIC, by whether TCP believed them.",
        icmp_errors(about = "flow"), icmp_ignored(about = "nothing_under_way");
    "rnic_mss_changes_total": "Times that the size of a connection's segments changed with its path.",
        mss_changes;
    "rnic_path_moves_total": "Times that a connection's frames took another path: other Ethernet addresses, MTU or hop limit.",
        path_moves;
    "rnic_fragmented_segments_total": "Segments sent as IP fragments, because their path had become narrower.",
        tx_fragmented;
    "rnic_fragments_sent_total": "IP fragments sent.", tx_fragments;
    "rnic_flush_failures_total": "Times that a port could not be flushed: its interface is down or gone.",
        flush_failed;
    "rnic_client_faults_total": "Clients taken away because they broke the rules of their rings or took shared memory away.",
        client_faults;
    "rnic_memory_faults_total": "Regions and rings whose memory was gone when the RNIC accessed it.",
        memory_faults;
    "rnic_sctp_sessions_begun_again_total": "Sessions begun again on an association of their own, because the one that they joined did not take them.",
        sessions_begun_again;
    "rnic_sctp_messages_unplaced_total": "Messages that no session took: there was no place for one, or their stream took none any more.",
        sessions_unplaced;
}

crate::counters! { for c: Levels;
    "rnic_connections": "TCP connections and DDP Stream Sessions.",
        connections = c.connections as u64;
    "rnic_sctp_associations": "SCTP associations.", associations = c.associations as u64;
    "rnic_queue_pairs": "Queue pairs.", queue_pairs = c.queue_pairs as u64;
    "rnic_memory_regions": "Memory regions and windows.", regions = c.regions as u64;
    "rnic_frames": "Packet buffers, by where they are.",
        frames_free(place = "free") = c.frames_free as u64, frames_held(place = "parked") = c.frames_held as u64,
        frames_on_link(place = "link") = c.frames_on_link as u64;
    "rnic_receive_waiting_streams": "Streams that wait for a receive to be posted.",
        streams_held = c.streams_held as u64;
    "rnic_receive_waiting_bytes": "Bytes that were received in order and wait for a receive to be posted.",
        bytes_held = c.bytes_held;
}

// With the connections that the table of flows had no place for.
crate::counters! { for c: (HandoverStatistics, u64);
    "rnic_handovers_total": "Packets handed over between the shards of an interface, by result: the shard where they came counts `given` and `full`, the other one `taken` and `no_frame`.",
        handover_given(result = "given") = c.0.given, handover_taken(result = "taken") = c.0.taken,
        handover_full(result = "full") = c.0.full, handover_no_frame(result = "no_frame") = c.0.no_frame;
    "rnic_flow_table_full_total": "Connections whose segments other shards of the interface can't hand over, because their table had no place.",
        flow_table_full = c.1;
}

crate::counters! { for c: ReassemblyCounters;
    "rnic_fragments_received_total": "IP fragments received.", rx_fragments = c.fragments;
    "rnic_packets_reassembled_total": "Packets put together from IP fragments.",
        rx_reassembled = c.reassembled;
    "rnic_fragments_dropped_total": "IP fragments dropped, by reason.",
        rx_fragment_duplicates(reason = "duplicate") = c.duplicates,
        rx_fragments_malformed(reason = "malformed") = c.malformed,
        rx_fragments_overlapping(reason = "overlapping") = c.overlapping,
        rx_fragments_too_large(reason = "too_large") = c.too_large,
        rx_fragments_mixed_ecn(reason = "mixed_ecn") = c.mixed_ecn,
        rx_fragments_evicted(reason = "evicted") = c.evicted,
        rx_fragments_timed_out(reason = "timed_out") = c.timed_out;
}

crate::counters! { for c: TcpCounters;
    "rnic_tcp_syns_dropped_total": "SYNs dropped, by what was full.",
        tcp_backlog_full(reason = "backlog") = c.backlog_full, tcp_table_full(reason = "table") = c.table_full;
    "rnic_tcp_cookies_total": "SYN cookies, by result.",
        tcp_cookies_sent(result = "sent") = c.cookies_sent,
        tcp_cookies_accepted(result = "accepted") = c.cookies_accepted,
        tcp_cookies_rejected(result = "rejected") = c.cookies_rejected;
    "rnic_tcp_connections_evicted_total": "Connections forgotten early to make room, by their state.",
        tcp_half_open_evicted(state = "half_open") = c.half_open_evicted,
        tcp_time_wait_evicted(state = "time_wait") = c.time_wait_evicted;
    "rnic_tcp_unknown_flow_segments_total": "Segments of no connection and to no listener.",
        tcp_unknown_flow = c.unknown_flow;
    "rnic_tcp_resets_total": "Resets for segments of no connection: sent, or not sent because there were too many.",
        tcp_resets_sent(result = "sent") = c.resets_sent, tcp_resets_limited(result = "limited") = c.resets_limited;
}

crate::counters! { for c: ConnCounters;
    "rnic_tcp_segments_total": "TCP segments of connections, retransmissions included.",
        tcp_segments_in(direction = "received") = c.segments_in,
        tcp_segments_out(direction = "sent") = c.segments_out;
    "rnic_tcp_payload_bytes_total": "Bytes of TCP payload received or sent for the first time.",
        tcp_bytes_in(direction = "received") = c.bytes_in, tcp_bytes_out(direction = "sent") = c.bytes_out;
    "rnic_tcp_retransmitted_segments_total": "Segments with payload sent again.",
        tcp_retransmits = c.retransmits;
    "rnic_tcp_timeouts_total": "Retransmission timeouts.", tcp_timeouts = c.timeouts;
    "rnic_tcp_fast_recoveries_total": "Times that fast recovery began.",
        tcp_fast_recoveries = c.fast_recoveries;
    "rnic_tcp_window_probes_total": "Probes of a closed receive window.", tcp_probes = c.probes;
    "rnic_tcp_out_of_order_segments_total": "Segments that came out of order.",
        tcp_out_of_order = c.out_of_order;
    "rnic_tcp_duplicate_segments_total": "Segments with payload that was already received.",
        tcp_duplicates = c.duplicates;
    "rnic_tcp_segments_dropped_total": "Segments of connections dropped, by reason.",
        tcp_ranges_full(reason = "ranges_full") = c.ranges_full, tcp_paws_dropped(reason = "paws") = c.paws_dropped;
    "rnic_tcp_challenge_acks_total": "Challenge ACKs sent (RFC 5961).", tcp_challenges = c.challenges;
}

crate::counters! { for c: SctpCounters;
    "rnic_sctp_packets_total": "SCTP packets with the right checksum, and those sent.",
        sctp_packets_in(direction = "received") = c.packets_in, sctp_packets_out(direction = "sent") = c.packets_out;
    "rnic_sctp_data_chunks_sent_total": "DATA chunks sent, retransmissions included.",
        sctp_chunks_out = c.chunks_out;
    "rnic_sctp_retransmitted_chunks_total": "DATA chunks sent again.",
        sctp_retransmits = c.retransmits;
    "rnic_sctp_timeouts_total": "Retransmission timeouts (T3-rtx).", sctp_timeouts = c.timeouts;
    "rnic_sctp_packets_dropped_total": "SCTP packets that brought nothing to an association, by reason.",
        sctp_malformed(reason = "malformed") = c.malformed, sctp_wrong_tags(reason = "wrong_tag") = c.wrong_tags,
        sctp_unknown_flow(reason = "unknown_flow") = c.strangers,
        sctp_inits_refused(reason = "init_refused") = c.inits_refused,
        sctp_table_full(reason = "table_full") = c.associations_refused;
    "rnic_sctp_cookies_total": "State Cookies that were refused, by what they were.",
        sctp_cookies_rejected(result = "rejected") = c.foreign_cookies,
        sctp_cookies_stale(result = "stale") = c.stale_cookies;
    "rnic_sctp_answers_dropped_total": "Answers to packets of no association that were not sent, because there were too many.",
        sctp_answers_dropped = c.answers_dropped;
}

// Each port's, as `portN_NAME`.
crate::counters! { for c: PortStatistics;
    "rnic_port_frames_total": "Frames received from the link, handed to it, and given back by it.",
        received(direction = "received") = c.received, transmitted(direction = "sent") = c.transmitted,
        completed(direction = "completed") = c.completed;
    "rnic_port_bytes_total": "Bytes of the frames received from the link and handed to it.",
        received_bytes(direction = "received") = c.received_bytes,
        transmitted_bytes(direction = "sent") = c.transmitted_bytes;
    "rnic_port_send_calls_total": "System calls that woke the kernel to send.",
        send_calls = c.send_calls;
    "rnic_port_super_packets_total": "Packets received in several frames, packets sent with several segments in them, and these segments.",
        chains_received(what = "received") = c.chains_received,
        super_packets_sent(what = "sent") = c.super_packets_sent,
        super_packet_segments_sent(what = "segments_sent") = c.super_packet_segments_sent;
    "rnic_port_errors_total": "Problems at a port, by kind; `kernel_` comes from XDP_STATISTICS.",
        send_busy(reason = "send_busy") = c.send_busy, send_dropped(reason = "send_dropped") = c.send_dropped,
        transmit_ring_full(reason = "transmit_ring_full") = c.transmit_ring_full,
        bad_receive_descriptors(reason = "bad_receive_descriptor") = c.bad_receive_descriptors,
        bad_receive_chains(reason = "bad_receive_chain") = c.bad_receive_chains,
        bad_completions(reason = "bad_completion") = c.bad_completions,
        receive_no_frame(reason = "receive_no_frame") = c.receive_no_frame,
        kernel_rx_dropped(reason = "kernel_rx_dropped") = c.kernel_rx_dropped,
        kernel_rx_ring_full(reason = "kernel_rx_ring_full") = c.kernel_rx_ring_full,
        kernel_fill_ring_empty(reason = "kernel_fill_ring_empty") = c.kernel_fill_ring_empty,
        kernel_rx_invalid(reason = "kernel_rx_invalid") = c.kernel_rx_invalid,
        kernel_tx_invalid(reason = "kernel_tx_invalid") = c.kernel_tx_invalid,
        kernel_tx_ring_empty(reason = "kernel_tx_ring_empty") = c.kernel_tx_ring_empty;
}

/// What of the host's policy came to bear on this shard.
pub(crate) struct HostPolicyCounters<'a> {
    /// Connections that were not begun.
    pub connects: &'a mut u64,
    /// Segments of no connection that were dropped, and answers to them.
    pub dropped: &'a mut u64,
    /// Connections that ended.
    pub ended: &'a mut u64,
}

impl ShardCounters {
    /// Connections in RDMA mode that ended for this reason, which the peer closed first or not.
    pub(crate) fn ended(&mut self, reason: DisconnectReason, peer_closed_first: bool) -> &mut u64 {
        match reason {
            DisconnectReason::Graceful if peer_closed_first => &mut self.ended_closed_by_peer,
            DisconnectReason::Graceful => &mut self.ended_closed_here,
            DisconnectReason::Aborted => &mut self.ended_aborted,
            DisconnectReason::Reset => &mut self.ended_reset_by_peer,
            DisconnectReason::TimedOut => &mut self.ended_timed_out,
            DisconnectReason::PeerClosed => &mut self.ended_cut_by_peer,
            DisconnectReason::TerminateSent { .. } => &mut self.ended_terminate_sent,
            DisconnectReason::TerminateReceived { .. } => &mut self.ended_terminate_received,
            DisconnectReason::PeerFault { .. } | DisconnectReason::NotMpa => {
                &mut self.ended_peer_fault
            }
            DisconnectReason::LocalError => &mut self.ended_local_error,
            DisconnectReason::InterfaceGone => &mut self.ended_interface_gone,
            DisconnectReason::AddressGone => &mut self.ended_address_gone,
            _ => &mut self.ended_other,
        }
    }

    /// Segments of peers that this owner's allow-list does not have.
    pub(crate) fn refused_peers(&mut self, list: ListOwner) -> &mut u64 {
        match list {
            ListOwner::Interface => &mut self.peers_refused_interface,
            ListOwner::User => &mut self.peers_refused_user,
            ListOwner::Listener => &mut self.peers_refused_listener,
        }
    }

    /// What this of the host forbade.
    pub(crate) fn host_policy(&mut self, by: ForbiddenBy) -> HostPolicyCounters<'_> {
        match by {
            ForbiddenBy::Ipsec => HostPolicyCounters {
                connects: &mut self.ipsec_refused_connects,
                dropped: &mut self.ipsec_dropped_segments,
                ended: &mut self.ipsec_ended_connections,
            },
            ForbiddenBy::Routes => HostPolicyCounters {
                connects: &mut self.routes_refused_connects,
                dropped: &mut self.routes_dropped_segments,
                ended: &mut self.routes_ended_connections,
            },
        }
    }

    /// Counts a dropped frame.
    pub(crate) fn count_unusable(&mut self, reason: DropReason) {
        *match reason {
            DropReason::Truncated => &mut self.rx_truncated,
            DropReason::NotIp => &mut self.rx_not_ip,
            DropReason::IpHeader => &mut self.rx_bad_ip_header,
            DropReason::IpChecksum => &mut self.rx_bad_ip_checksum,
            DropReason::OtherProtocol => &mut self.rx_other_protocol,
            DropReason::GroupAddress => &mut self.rx_group_address,
            DropReason::SourceRoute => &mut self.rx_source_route,
            DropReason::TcpChecksum => &mut self.rx_bad_tcp_checksum,
            DropReason::UdpChecksum => &mut self.rx_bad_udp_checksum,
            // Reassembly counts them.
            DropReason::Fragment => return,
        } += 1;
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
    handover: &(HandoverStatistics, u64),
    ports: impl Iterator<Item = PortStatistics>,
) -> Vec<(String, u64)> {
    let (early, late) = (shard.bytes_placed_early, shard.bytes_out_of_order);
    let mut all = shard.named();
    // What is no metric, because others tell it.
    all.push(("bytes_parked", late.saturating_sub(early)));
    for more in [
        reassembly.named(),
        handover.named(),
        levels.named(),
        tcp.named(),
        streams.named(),
        sctp.named(),
        qp.named(),
    ] {
        all.extend(more);
    }
    let all = all
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let of_ports = ports.enumerate().flat_map(|(index, port)| {
        let named = port.named().into_iter();
        named.map(move |(name, value)| (format!("port{index}_{name}"), value))
    });
    all.chain(of_ports).collect()
}
