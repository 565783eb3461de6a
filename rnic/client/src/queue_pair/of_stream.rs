//! Regions of one queue pair's stream.

use std::os::fd::AsFd;

use rnic_ipc::control::Access;

use super::QueuePair;
use crate::error::Error;
use crate::memory::MemoryRegion;

impl QueuePair {
    /// As [`ProtectionDomain::register`](crate::ProtectionDomain::register), for this queue pair's stream only: no
    /// other queue pair of the domain and no other peer may use the region, and the peer may invalidate it. Its rights
    /// end with the connection: the next one of the same queue pair is another stream.
    pub fn register(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        let stream = Some(self.num());
        self.protection_domain().register_new(len, access, stream)
    }

    /// As [`ProtectionDomain::register_fd`](crate::ProtectionDomain::register_fd), for this queue pair's stream only.
    pub fn register_fd(
        &self,
        fd: impl AsFd,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (stream, domain) = (Some(self.num()), self.protection_domain());
        domain.register_fd_for(fd, (offset, len), access, stream)
    }
}
