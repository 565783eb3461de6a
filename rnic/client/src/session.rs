//! The session of a client whose RNIC is in this process. Without the feature `embedded` there is none: its
//! type then has no value, and what would use one compiles to nothing.

#[cfg(feature = "embedded")]
pub(crate) use rnic_device::ClientSession as Session;

#[cfg(not(feature = "embedded"))]
pub(crate) use absent::Session;

#[cfg(not(feature = "embedded"))]
mod absent {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use rnic_ipc::control::{RegionSpec, Reply, Request};
    use rnic_ipc::id::QpNum;
    use rnic_ipc::shm::SharedMemory;

    /// What `rnic_device::ClientSession` is elsewhere.
    #[derive(Debug)]
    pub(crate) enum Session {}

    impl Session {
        pub(crate) fn device(&self) -> &Self {
            self
        }

        pub(crate) fn drive(&self) -> bool {
            match *self {}
        }

        pub(crate) fn is_inline(&self) -> bool {
            match *self {}
        }

        pub(crate) fn transmit_posted(&self, _: QpNum) -> bool {
            match *self {}
        }

        pub(crate) fn request(&self, _: Request, _: Vec<OwnedFd>) -> (Reply, Vec<OwnedFd>) {
            match *self {}
        }

        pub(crate) fn register_local(&self, _: RegionSpec, _: Arc<SharedMemory>) -> Reply {
            match *self {}
        }
    }
}
