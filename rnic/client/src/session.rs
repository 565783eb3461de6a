//! The session of a client whose RNIC is in this process. Without the feature `embedded` there is none: its
//! type then has no value, and what would use one compiles to nothing.

#[cfg(feature = "embedded")]
pub(crate) use rnic_device::ClientSession as Session;

#[cfg(not(feature = "embedded"))]
pub(crate) use absent::Session;

#[cfg(feature = "embedded")]
mod embedded {
    use std::sync::Arc;

    use rnic_device::{Credentials, Device};

    use crate::context::Context;
    use crate::error::Error;
    use crate::link::Link;

    impl Context {
        /// Through a device in this process. With [`crate::Runtime::Caller`] the engine runs in the
        /// calls of this crate, and only there: a program that makes none for long lets its peers time
        /// out.
        pub fn embedded(device: &Arc<Device>) -> Result<Self, Error> {
            let credentials = Credentials {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                pid: std::process::id(),
                // The device is this process's own.
                superuser: rustix::process::geteuid().is_root(),
            };
            Self::over(Link::Embedded(device.connect_client(credentials)?))
        }
    }
}

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
