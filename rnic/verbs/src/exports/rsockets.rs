//! Sockets over RDMA, which the RNIC does not have: no such socket can be made.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::ffi::{Fail, exports};

/// A function on a descriptor that can't be one of an rsocket.
macro_rules! of_no_socket {
    ($($kind:ident $name:ident -> $ret:ty;)*) => {
        $(exports! { "RDMACM_1.0" $kind fn $name() -> $ret { Err(Errno::BADF.into()) } })*
    };
}

exports! {
    "RDMACM_1.0" number fn rsocket() -> c_int {
        Err(Fail::of(Errno::NOSYS, "sockets over RDMA are not there"))
    }
}

of_no_socket! {
    number raccept -> c_int;
    number rbind -> c_int;
    number rclose -> c_int;
    number rconnect -> c_int;
    number rfcntl -> c_int;
    number rgetpeername -> c_int;
    number rgetsockname -> c_int;
    number rgetsockopt -> c_int;
    long riomap -> isize;
    number riounmap -> c_int;
    long riowrite -> isize;
    number rlisten -> c_int;
    number rpoll -> c_int;
    long rread -> isize;
    long rreadv -> isize;
    long rrecv -> isize;
    long rrecvfrom -> isize;
    long rrecvmsg -> isize;
    number rselect -> c_int;
    long rsend -> isize;
    long rsendmsg -> isize;
    long rsendto -> isize;
    number rsetsockopt -> c_int;
    number rshutdown -> c_int;
    long rwrite -> isize;
    long rwritev -> isize;
}
