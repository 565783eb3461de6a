//! The structs of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as rdma-core 44 (Debian 12) to 64 lay
//! them out. Programs reach into them, by inline functions of the headers too, so that every offset is
//! ABI: `abi::tests` compares them with the headers, and each struct's size is checked when it is compiled.
//!
//! Types, fields and constants have the headers' names.

#![allow(non_camel_case_types)]

mod attributes;
mod cm;
mod device;
mod objects;
mod work;

#[cfg(test)]
mod tests;

pub(crate) use attributes::*;
pub(crate) use cm::*;
pub(crate) use device::*;
pub(crate) use objects::*;
pub(crate) use work::*;

/// Checks sizes when this is compiled.
macro_rules! sizes {
    ($($type:ty = $size:literal),* $(,)?) => {
        $(const _: () = assert!(size_of::<$type>() == $size);)*
    };
}
use sizes;
