//! The metrics of what a shard counts.

use super::{Family, level, one};

/// What the shard counts; each sample has its shard's number.
pub const SHARD: &[Family] = &[
    one(
        "rnic_frames_dropped_total",
        "Received frames dropped, by reason.",
        &[
            (r#"reason="truncated""#, "rx_truncated"),
            (r#"reason="not_ip""#, "rx_not_ip"),
            (r#"reason="bad_ip_header""#, "rx_bad_ip_header"),
            (r#"reason="bad_ip_checksum""#, "rx_bad_ip_checksum"),
            (r#"reason="other_protocol""#, "rx_other_protocol"),
            (r#"reason="group_address""#, "rx_group_address"),
            (r#"reason="source_route""#, "rx_source_route"),
            (r#"reason="bad_tcp_checksum""#, "rx_bad_tcp_checksum"),
            (r#"reason="bad_udp_checksum""#, "rx_bad_udp_checksum"),
            (r#"reason="bad_tcp_header""#, "rx_tcp_malformed"),
            (r#"reason="wrong_vlan""#, "rx_wrong_vlan"),
            (r#"reason="martian""#, "rx_martians"),
        ],
    ),
    one(
        "rnic_partial_checksums_total",
        "Received TCP segments whose checksum the sending host left to a device without a wire, which were taken.",
        &[("", "rx_partial_checksums")],
    ),
    one(
        "rnic_peers_refused_total",
        "Segments to listeners that were dropped because an allow-list does not have the peer, by whose list it is.",
        &[
            (r#"list="interface""#, "peers_refused_interface"),
            (r#"list="user""#, "peers_refused_user"),
            (r#"list="listener""#, "peers_refused_listener"),
        ],
    ),
    one(
        "rnic_host_ipsec_total",
        "Connections refused, segments of no connection dropped and connections ended because the host's IPsec policies forbid them in clear.",
        &[
            (r#"what="connect_refused""#, "ipsec_refused_connects"),
            (r#"what="segment_dropped""#, "ipsec_dropped_segments"),
            (r#"what="connection_ended""#, "ipsec_ended_connections"),
        ],
    ),
    one(
        "rnic_host_routes_total",
        "Connections refused, segments of no connection dropped and connections ended because the host's routes or rules reject what goes to the peer.",
        &[
            (r#"what="connect_refused""#, "routes_refused_connects"),
            (r#"what="segment_dropped""#, "routes_dropped_segments"),
            (r#"what="connection_ended""#, "routes_ended_connections"),
        ],
    ),
    one(
        "rnic_connections_opened_total",
        "TCP connections begun, by the side that began them: this side (active) or the peer (passive).",
        &[
            (r#"side="active""#, "active_opens"),
            (r#"side="passive""#, "passive_opens"),
        ],
    ),
    one(
        "rnic_connections_established_total",
        "Connections that reached RDMA mode.",
        &[("", "established")],
    ),
    one(
        "rnic_connections_failed_total",
        "Connections that ended before RDMA mode.",
        &[("", "startup_failed")],
    ),
    one(
        "rnic_connections_ended_total",
        "Connections in RDMA mode that ended, by how.",
        &[
            (r#"reason="closed_here""#, "ended_closed_here"),
            (r#"reason="closed_by_peer""#, "ended_closed_by_peer"),
            (r#"reason="aborted""#, "ended_aborted"),
            (r#"reason="owner_gone""#, "ended_owner_gone"),
            (r#"reason="reset_by_peer""#, "ended_reset_by_peer"),
            (r#"reason="timed_out""#, "ended_timed_out"),
            (r#"reason="cut_by_peer""#, "ended_cut_by_peer"),
            (r#"reason="terminate_sent""#, "ended_terminate_sent"),
            (r#"reason="terminate_received""#, "ended_terminate_received"),
            (r#"reason="peer_fault""#, "ended_peer_fault"),
            (r#"reason="local_error""#, "ended_local_error"),
            (r#"reason="interface_gone""#, "ended_interface_gone"),
            (r#"reason="address_gone""#, "ended_address_gone"),
            (r#"reason="other""#, "ended_other"),
        ],
    ),
    one(
        "rnic_connections_without_markers_total",
        "Connections asked for again without Markers, which the peer seemed to refuse.",
        &[("", "markers_refused")],
    ),
    one(
        "rnic_connections_reset_total",
        "Connections that the RNIC reset on its own, by reason: a timeout, a full backlog, or STag scanning.",
        &[
            (r#"reason="backlog_full""#, "backlog_full"),
            (r#"reason="backlog_evicted""#, "backlog_evicted"),
            (r#"reason="stag_scan_limit""#, "stag_scan_limit"),
            (r#"reason="startup_timeout""#, "startup_timeouts"),
            (r#"reason="answer_timeout""#, "answer_timeouts"),
            (r#"reason="close_timeout""#, "close_timeouts"),
            (r#"reason="silence_timeout""#, "silence_timeouts"),
        ],
    ),
    one(
        "rnic_out_of_order_bytes_total",
        "Bytes of FPDU streams received out of order.",
        &[("", "bytes_out_of_order")],
    ),
    one(
        "rnic_placed_early_bytes_total",
        "Bytes that were placed in the application's memory out of order.",
        &[("", "bytes_placed_early")],
    ),
    one(
        "rnic_bounced_segments_total",
        "Segments whose bytes were copied to a bounce ring, because frames ran low or there were too many pieces.",
        &[("", "bounced")],
    ),
    one(
        "rnic_send_waits_total",
        "Times that sending had to wait, by reason.",
        &[
            (r#"reason="no_frame""#, "no_frame"),
            (r#"reason="transmit_ring_full""#, "transmit_full"),
            (r#"reason="macroflow""#, "macroflow_waits"),
        ],
    ),
    one(
        "rnic_macroflow_reductions_total",
        "Times that the connections to one peer were allowed fewer segments in flight because of losses.",
        &[("", "macroflow_reductions")],
    ),
    one(
        "rnic_handovers_total",
        "Packets handed over between the shards of an interface, by result.",
        &[
            (r#"result="given""#, "handover_given"),
            (r#"result="taken""#, "handover_taken"),
            (r#"result="full""#, "handover_full"),
            (r#"result="no_frame""#, "handover_no_frame"),
        ],
    ),
    one(
        "rnic_flow_table_full_total",
        "Connections whose segments other shards of the interface can't hand over, because their table had no place.",
        &[("", "flow_table_full")],
    ),
    one(
        "rnic_unsendable_segments_total",
        "Segments that could not be sent: no way is known, or the headers don't fit.",
        &[("", "unsendable")],
    ),
    one(
        "rnic_no_path_packets_total",
        "SCTP packets to a further address of a peer, to which no way is known.",
        &[("", "no_path")],
    ),
    one(
        "rnic_fpdus_cut_total",
        "Segments cut because the peer's window stayed too small for a whole FPDU.",
        &[("", "fpdus_cut")],
    ),
    one(
        "rnic_icmp_errors_total",
        "ICMP errors about flows of the RNIC, by whether TCP believed them.",
        &[
            (r#"about="flow""#, "icmp_errors"),
            (r#"about="nothing_under_way""#, "icmp_ignored"),
        ],
    ),
    one(
        "rnic_mss_changes_total",
        "Times that the size of a connection's segments changed with its path.",
        &[("", "mss_changes")],
    ),
    one(
        "rnic_path_moves_total",
        "Times that a connection's frames took another path: other Ethernet addresses, MTU or hop limit.",
        &[("", "path_moves")],
    ),
    one(
        "rnic_fragmented_segments_total",
        "Segments sent as IP fragments, because their path had become narrower.",
        &[("", "tx_fragmented")],
    ),
    one(
        "rnic_fragments_sent_total",
        "IP fragments sent.",
        &[("", "tx_fragments")],
    ),
    one(
        "rnic_fragments_received_total",
        "IP fragments received.",
        &[("", "rx_fragments")],
    ),
    one(
        "rnic_packets_reassembled_total",
        "Packets put together from IP fragments.",
        &[("", "rx_reassembled")],
    ),
    one(
        "rnic_fragments_dropped_total",
        "IP fragments dropped, by reason.",
        &[
            (r#"reason="duplicate""#, "rx_fragment_duplicates"),
            (r#"reason="malformed""#, "rx_fragments_malformed"),
            (r#"reason="overlapping""#, "rx_fragments_overlapping"),
            (r#"reason="too_large""#, "rx_fragments_too_large"),
            (r#"reason="mixed_ecn""#, "rx_fragments_mixed_ecn"),
            (r#"reason="evicted""#, "rx_fragments_evicted"),
            (r#"reason="timed_out""#, "rx_fragments_timed_out"),
        ],
    ),
    one(
        "rnic_flush_failures_total",
        "Times that a port could not be flushed: its interface is down or gone.",
        &[("", "flush_failed")],
    ),
    one(
        "rnic_client_faults_total",
        "Clients taken away because they broke the rules of their rings or took shared memory away.",
        &[("", "client_faults")],
    ),
    one(
        "rnic_memory_faults_total",
        "Regions and rings whose memory was gone when the RNIC accessed it.",
        &[("", "memory_faults")],
    ),
    level(
        "rnic_connections",
        "TCP connections and DDP Stream Sessions.",
        &[("", "connections")],
    ),
    level(
        "rnic_sctp_associations",
        "SCTP associations.",
        &[("", "associations")],
    ),
    level("rnic_queue_pairs", "Queue pairs.", &[("", "queue_pairs")]),
    level(
        "rnic_memory_regions",
        "Memory regions and windows.",
        &[("", "regions")],
    ),
    level(
        "rnic_frames",
        "Packet buffers, by where they are.",
        &[
            (r#"place="free""#, "frames_free"),
            (r#"place="parked""#, "frames_held"),
            (r#"place="link""#, "frames_on_link"),
        ],
    ),
    one(
        "rnic_tcp_syns_dropped_total",
        "SYNs dropped, by what was full.",
        &[
            (r#"reason="backlog""#, "tcp_backlog_full"),
            (r#"reason="table""#, "tcp_table_full"),
        ],
    ),
    one(
        "rnic_tcp_cookies_total",
        "SYN cookies, by result.",
        &[
            (r#"result="sent""#, "tcp_cookies_sent"),
            (r#"result="accepted""#, "tcp_cookies_accepted"),
            (r#"result="rejected""#, "tcp_cookies_rejected"),
        ],
    ),
    one(
        "rnic_tcp_connections_evicted_total",
        "Connections forgotten early to make room, by their state.",
        &[
            (r#"state="half_open""#, "tcp_half_open_evicted"),
            (r#"state="time_wait""#, "tcp_time_wait_evicted"),
        ],
    ),
    one(
        "rnic_tcp_unknown_flow_segments_total",
        "Segments of no connection and to no listener.",
        &[("", "tcp_unknown_flow")],
    ),
    one(
        "rnic_tcp_resets_total",
        "Resets for segments of no connection: sent, or not sent because there were too many.",
        &[
            (r#"result="sent""#, "tcp_resets_sent"),
            (r#"result="limited""#, "tcp_resets_limited"),
        ],
    ),
    one(
        "rnic_tcp_segments_total",
        "TCP segments of connections, retransmissions included.",
        &[
            (r#"direction="received""#, "tcp_segments_in"),
            (r#"direction="sent""#, "tcp_segments_out"),
        ],
    ),
    one(
        "rnic_tcp_payload_bytes_total",
        "Bytes of TCP payload received or sent for the first time.",
        &[
            (r#"direction="received""#, "tcp_bytes_in"),
            (r#"direction="sent""#, "tcp_bytes_out"),
        ],
    ),
    one(
        "rnic_tcp_retransmitted_segments_total",
        "Segments with payload sent again.",
        &[("", "tcp_retransmits")],
    ),
    one(
        "rnic_tcp_timeouts_total",
        "Retransmission timeouts.",
        &[("", "tcp_timeouts")],
    ),
    one(
        "rnic_tcp_fast_recoveries_total",
        "Times that fast recovery began.",
        &[("", "tcp_fast_recoveries")],
    ),
    one(
        "rnic_tcp_window_probes_total",
        "Probes of a closed receive window.",
        &[("", "tcp_probes")],
    ),
    one(
        "rnic_sctp_packets_total",
        "SCTP packets with the right checksum, and those sent.",
        &[
            (r#"direction="received""#, "sctp_packets_in"),
            (r#"direction="sent""#, "sctp_packets_out"),
        ],
    ),
    one(
        "rnic_sctp_data_chunks_sent_total",
        "DATA chunks sent, retransmissions included.",
        &[("", "sctp_chunks_out")],
    ),
    one(
        "rnic_sctp_retransmitted_chunks_total",
        "DATA chunks sent again.",
        &[("", "sctp_retransmits")],
    ),
    one(
        "rnic_sctp_timeouts_total",
        "Retransmission timeouts (T3-rtx).",
        &[("", "sctp_timeouts")],
    ),
    one(
        "rnic_sctp_packets_dropped_total",
        "SCTP packets that brought nothing to an association, by reason.",
        &[
            (r#"reason="malformed""#, "sctp_malformed"),
            (r#"reason="wrong_tag""#, "sctp_wrong_tags"),
            (r#"reason="unknown_flow""#, "sctp_unknown_flow"),
            (r#"reason="init_refused""#, "sctp_inits_refused"),
            (r#"reason="table_full""#, "sctp_table_full"),
        ],
    ),
    one(
        "rnic_sctp_sessions_begun_again_total",
        "Sessions begun again on an association of their own, because the one that they joined did not take them.",
        &[("", "sessions_begun_again")],
    ),
    one(
        "rnic_sctp_messages_unplaced_total",
        "Messages that no session took: there was no place for one, or their stream took none any more.",
        &[("", "sessions_unplaced")],
    ),
    one(
        "rnic_sctp_cookies_total",
        "State Cookies that were refused, by what they were.",
        &[
            (r#"result="rejected""#, "sctp_cookies_rejected"),
            (r#"result="stale""#, "sctp_cookies_stale"),
        ],
    ),
    one(
        "rnic_sctp_answers_dropped_total",
        "Answers to packets of no association that were not sent, because there were too many.",
        &[("", "sctp_answers_dropped")],
    ),
    one(
        "rnic_tcp_out_of_order_segments_total",
        "Segments that came out of order.",
        &[("", "tcp_out_of_order")],
    ),
    one(
        "rnic_tcp_duplicate_segments_total",
        "Segments with payload that was already received.",
        &[("", "tcp_duplicates")],
    ),
    one(
        "rnic_tcp_segments_dropped_total",
        "Segments of connections dropped, by reason.",
        &[
            (r#"reason="ranges_full""#, "tcp_ranges_full"),
            (r#"reason="paws""#, "tcp_paws_dropped"),
        ],
    ),
    one(
        "rnic_tcp_challenge_acks_total",
        "Challenge ACKs sent (RFC 5961).",
        &[("", "tcp_challenges")],
    ),
    one(
        "rnic_fpdus_total",
        "FPDUs: received whole with the right CRC, or produced.",
        &[
            (r#"direction="received""#, "fpdus_received"),
            (r#"direction="sent""#, "fpdus_sent"),
        ],
    ),
    one(
        "rnic_fpdu_errors_total",
        "FPDUs that ended their stream, by reason.",
        &[
            (r#"reason="crc""#, "crc_errors"),
            (r#"reason="marker""#, "marker_errors"),
        ],
    ),
    one(
        "rnic_memory_bytes_total",
        "Bytes placed in applications' memory, or gathered from it.",
        &[
            (r#"direction="placed""#, "bytes_placed"),
            (r#"direction="gathered""#, "bytes_gathered"),
        ],
    ),
    one(
        "rnic_messages_total",
        "RDMAP messages received or sent whole, by what they do.",
        &[
            (
                r#"direction="received",operation="write""#,
                "writes_received",
            ),
            (r#"direction="sent",operation="write""#, "writes_sent"),
            (r#"direction="received",operation="send""#, "sends_received"),
            (r#"direction="sent",operation="send""#, "sends_sent"),
            (
                r#"direction="received",operation="read_request""#,
                "read_requests_received",
            ),
            (
                r#"direction="sent",operation="read_request""#,
                "read_requests_sent",
            ),
            (
                r#"direction="received",operation="read_response""#,
                "read_responses_received",
            ),
            (
                r#"direction="sent",operation="read_response""#,
                "read_responses_sent",
            ),
            (
                r#"direction="received",operation="immediate""#,
                "immediates_received",
            ),
            (
                r#"direction="sent",operation="immediate""#,
                "immediates_sent",
            ),
            (
                r#"direction="received",operation="atomic_request""#,
                "atomic_requests_received",
            ),
            (
                r#"direction="sent",operation="atomic_request""#,
                "atomic_requests_sent",
            ),
            (
                r#"direction="received",operation="atomic_response""#,
                "atomic_responses_received",
            ),
            (
                r#"direction="sent",operation="atomic_response""#,
                "atomic_responses_sent",
            ),
            (
                r#"direction="received",operation="terminate""#,
                "terminates_received",
            ),
            (
                r#"direction="sent",operation="terminate""#,
                "terminates_sent",
            ),
        ],
    ),
    one(
        "rnic_local_work_total",
        "Local Invalidates done and memory windows bound.",
        &[("", "local_work_done")],
    ),
    one(
        "rnic_stags_invalidated_total",
        "STags invalidated for a peer's Send with Invalidate.",
        &[("", "stags_invalidated")],
    ),
    one(
        "rnic_accesses_refused_total",
        "Accesses by peers that were refused, by reason.",
        &[
            (r#"reason="invalid_stag""#, "refused_invalid_stag"),
            (
                r#"reason="stag_not_associated""#,
                "refused_stag_not_associated",
            ),
            (r#"reason="access_rights""#, "refused_access_rights"),
            (r#"reason="base_or_bounds""#, "refused_base_or_bounds"),
            (r#"reason="wrap""#, "refused_to_wrap"),
            (r#"reason="misaligned""#, "refused_misaligned"),
            (r#"reason="invalidate""#, "refused_invalidate"),
            (r#"reason="no_receive""#, "refused_no_receive"),
            (r#"reason="send_too_long""#, "refused_send_too_long"),
            (r#"reason="ird_exceeded""#, "refused_ird_exceeded"),
            (r#"reason="protocol""#, "refused_protocol"),
        ],
    ),
    one(
        "rnic_receive_waits_total",
        "Sends and Immediate Data that began to wait for a receive, and those that waited longer than they may.",
        &[
            (r#"what="begun""#, "holds_begun"),
            (r#"what="ran_out""#, "holds_ran_out"),
        ],
    ),
    level(
        "rnic_receive_waiting_streams",
        "Streams that wait for a receive to be posted.",
        &[("", "streams_held")],
    ),
    level(
        "rnic_receive_waiting_bytes",
        "Bytes that were received in order and wait for a receive to be posted.",
        &[("", "bytes_held")],
    ),
    one(
        "rnic_local_errors_total",
        "Work requests of local clients that named memory they may not use, or were impossible.",
        &[("", "local_errors")],
    ),
    one(
        "rnic_work_requests_total",
        "Work requests that ended, by result.",
        &[
            (r#"result="success""#, "work_completed"),
            (r#"result="error""#, "work_failed"),
            (r#"result="flushed""#, "work_flushed"),
        ],
    ),
];
