//! Names of numbers.

use std::ffi::{c_char, c_int};

use crate::ffi::{Ptr, exports};
use crate::strings::{self, c_text};

exports! {
    "IBVERBS_1.1" ptr fn ibv_node_type_str(number: c_int) -> Ptr<c_char> {
        Ok(c_text(strings::of(strings::NODE_TYPES, number, c"unknown")))
    }

    "IBVERBS_1.1" ptr fn ibv_port_state_str(number: c_int) -> Ptr<c_char> {
        Ok(c_text(strings::of(strings::PORT_STATES, number, c"unknown")))
    }

    "IBVERBS_1.1" ptr fn ibv_event_type_str(number: c_int) -> Ptr<c_char> {
        Ok(c_text(strings::of(strings::EVENT_TYPES, number, c"unknown")))
    }

    "IBVERBS_1.1" ptr fn ibv_wc_status_str(number: c_int) -> Ptr<c_char> {
        Ok(c_text(strings::of(strings::WC_STATUSES, number, c"unknown")))
    }

    "RDMACM_1.0" ptr fn rdma_event_str(number: c_int) -> Ptr<c_char> {
        Ok(c_text(strings::of(strings::CM_EVENTS, number, c"UNKNOWN EVENT")))
    }

    "IBVERBS_1.1" plain fn ibv_rate_to_mbps(rate: c_int) -> c_int {
        strings::RATES.iter().find(|(number, _)| *number == rate).map_or(-1, |(_, mbps)| *mbps)
    }

    "IBVERBS_1.1" plain fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
        strings::RATES.iter().find(|(_, found)| *found == mbps).map_or(0, |(number, _)| *number)
    }

    "IBVERBS_1.0" plain fn ibv_rate_to_mult(rate: c_int) -> c_int {
        strings::RATES.iter().find(|(number, _)| *number == rate).map_or(-1, |(_, mbps)| *mbps / 2500)
    }

    "IBVERBS_1.0" plain fn mult_to_ibv_rate(mult: c_int) -> c_int {
        strings::RATES.iter().find(|(_, mbps)| *mbps / 2500 == mult).map_or(0, |(number, _)| *number)
    }
}
