//! What the queue pairs of a shard count. Every refusal is counted under its reason.

crate::counters! {
    /// Counts of queue pairs: a shard's, or a client's.
    pub struct QpCounters;
    "rnic_fpdus_total": "FPDUs: received whole with the right CRC, or produced.",
        fpdus_received(direction = "received"), fpdus_sent(direction = "sent");
    "rnic_fpdu_errors_total": "FPDUs that ended their stream, by reason.",
        crc_errors(reason = "crc"), marker_errors(reason = "marker");
    "rnic_memory_bytes_total": "Bytes placed in applications' memory, or gathered from it.",
        bytes_placed(direction = "placed"), bytes_gathered(direction = "gathered");
    "rnic_messages_total": "RDMAP messages received or sent whole, by what they do.",
        writes_received(direction = "received", operation = "write"),
        writes_sent(direction = "sent", operation = "write"),
        sends_received(direction = "received", operation = "send"),
        sends_sent(direction = "sent", operation = "send"),
        read_requests_received(direction = "received", operation = "read_request"),
        read_requests_sent(direction = "sent", operation = "read_request"),
        read_responses_received(direction = "received", operation = "read_response"),
        read_responses_sent(direction = "sent", operation = "read_response"),
        immediates_received(direction = "received", operation = "immediate"),
        immediates_sent(direction = "sent", operation = "immediate"),
        atomic_requests_received(direction = "received", operation = "atomic_request"),
        atomic_requests_sent(direction = "sent", operation = "atomic_request"),
        atomic_responses_received(direction = "received", operation = "atomic_response"),
        atomic_responses_sent(direction = "sent", operation = "atomic_response"),
        terminates_received(direction = "received", operation = "terminate"),
        terminates_sent(direction = "sent", operation = "terminate");
    "rnic_local_work_total": "Local Invalidates done and memory windows bound.", local_work_done;
    "rnic_stags_invalidated_total": "STags invalidated for a peer's Send with Invalidate.",
        stags_invalidated;
    "rnic_accesses_refused_total": "Accesses by peers that were refused, by reason.",
        refused_invalid_stag(reason = "invalid_stag"), refused_stag_not_associated(reason = "stag_not_associated"),
        refused_access_rights(reason = "access_rights"), refused_base_or_bounds(reason = "base_or_bounds"),
        refused_to_wrap(reason = "wrap"), refused_misaligned(reason = "misaligned"),
        refused_invalidate(reason = "invalidate"), refused_no_receive(reason = "no_receive"),
        refused_send_too_long(reason = "send_too_long"), refused_ird_exceeded(reason = "ird_exceeded"),
        refused_protocol(reason = "protocol");
    "rnic_receive_waits_total": "Sends and Immediate Data that began to wait for a receive, and those that waited longer than they may.",
        holds_begun(what = "begun"), holds_ran_out(what = "ran_out");
    "rnic_local_errors_total": "Work requests of local clients that named memory they may not use, or were impossible.",
        local_errors;
    "rnic_work_requests_total": "Work requests that ended, by result.",
        work_completed(result = "success"), work_failed(result = "error"), work_flushed(result = "flushed");
}
