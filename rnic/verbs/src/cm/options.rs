//! Options of identifiers.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;

use crate::cm::CmId;
use crate::ffi::{Fail, Outcome, Ptr};

const INT: usize = size_of::<c_int>();
const RDMA_OPTION_ID: c_int = 0;
const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
const RDMA_OPTION_ID_AFONLY: c_int = 2;
const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;

impl CmId {
    pub(crate) fn set_option(
        &self,
        (level, name): (c_int, c_int),
        value: Ptr<c_void>,
        length: usize,
    ) -> Outcome<()> {
        match (level, name, length) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, INT) => {
                self.state().reuse = value.cast::<c_int>().read()? != 0;
                Ok(())
            }
            // As IBV_QP_TIMEOUT of a queue pair: TCP has timers of its own.
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1) => Ok(()),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, INT) => {
                self.state().only_own_family = value.cast::<c_int>().read()? != 0;
                Ok(())
            }
            _ => Err(Fail::of(
                Errno::NOSYS,
                format!("option {name} of level {level} (type of service) is not there"),
            )),
        }
    }
}
